"""How long a client wants to wait, and whether a request has ended."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Any, Final

from forebay.gateway.http.limits import ANSWER_S, WAIT_S_MAX
from forebay.gateway.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.gateway.asgi.server_link import ServerLink
    from forebay.gateway.http.exchange import Exchange

__all__ = ["SOON_S", "end_now", "one_value", "preferred_wait", "wait_of"]

SOON_S: Final = 0.02
"""For the end of a request that has ended; one that has none by then is asked for its status."""

UNFINISHED: Final = ("queued", "running")


def one_value(query: Mapping[str, list[str]], name: str) -> str | None:
    """A value of the query; None where it is not given.

    Raises:
        Problem: it is given twice.
    """
    values = query.get(name)
    if values is None:
        return None
    if len(values) > 1:
        raise _wrong(name, f"{name} is given {len(values)} times", "give it once")
    return values[0]


def wait_of(exchange: Exchange) -> float | None:
    """The seconds of `?wait`, at most `WAIT_S_MAX`; None where it is not given."""
    text = one_value(exchange.query(), "wait")
    return None if text is None else _seconds("wait", text)


def preferred_wait(exchange: Exchange) -> float | None:
    """The seconds of `Prefer: wait=...`, at most `WAIT_S_MAX`; None where it says nothing.

    One that cannot be read counts as none (RFC 7240, section 2).
    """
    header = exchange.header(b"prefer")
    if header is None:
        return None
    for preference in header.split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() == "wait":
            with contextlib.suppress(Problem):
                return _seconds("Prefer", value.strip().strip('"'))
    return None


async def end_now(server: ServerLink, id_: str) -> Any:
    """The status and payload of a request that has ended; None where it has not.

    Its end is asked for, and only where that is not answered at once its status: the end comes
    without the server's Python.
    """
    call = asyncio.ensure_future(server.end_of(id_, ANSWER_S))
    try:
        await asyncio.wait((call,), timeout=SOON_S)
        if not call.done() and (await server.ask("status", id_))["status"] in UNFINISHED:
            return None
        return await call
    finally:
        call.cancel()


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:  # also true for a nan
        raise _wrong(name, f"{name} is {text!r:.100}", f"give seconds, 0 to {WAIT_S_MAX:g}")
    return min(seconds, WAIT_S_MAX)


def _wrong(name: str, message: str, next_: str) -> Problem:
    return Problem(422, "invalid", message, object=name, next=next_)
