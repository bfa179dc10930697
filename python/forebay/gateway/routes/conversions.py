"""Results in forms that are made of them: one is made at a time, and what is not sent is bounded.

A form that is a view of the result costs nothing. JSON is made whole: of a result of 9 MB in small
numbers 100 MB of objects, and then a text which is there until its reader has read it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from forebay.gateway.problems import Problem
from forebay.gateway.results import JSON_RESULT_BYTES_MAX, Result, result_out

if TYPE_CHECKING:
    from forebay.gateway.http.exchange import Exchange

__all__ = ["Conversions"]

LARGE_BYTES: Final = 256 << 10
"""A longer result is looked at in a thread: it takes milliseconds."""

KEPT_BYTES_MAX: Final = 2 * JSON_RESULT_BYTES_MAX
"""Of what was made and is not sent yet, beyond the first one."""

WAITING_MAX: Final = 64
"""Requests whose results are to be made; they are made one after the other."""


class Conversions:
    """Those of one gateway. Loop affinity: the gateway's."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._kept_bytes = 0

    @contextlib.asynccontextmanager
    async def made(
        self, exchange: Exchange, payload: Any, accept: str | None
    ) -> AsyncIterator[Result]:
        """A result in the form that a client accepts best, until it is sent.

        Args:
            exchange: that it is for.
            payload: a buffer of bytes.
            accept: the header.

        Raises:
            GoneError: the client left while others had their turn.
            Problem: 406, or 503: too much is under way.
        """
        if len(payload) <= LARGE_BYTES:
            result = result_out(payload, accept, self._admit)
        else:
            result = await self._made_in_turn(exchange, payload, accept)
        own = sum(len(part) for part in result.parts if type(part) is bytes)
        self._kept_bytes += own
        try:
            yield result
        finally:
            self._kept_bytes -= own

    async def _made_in_turn(self, exchange: Exchange, payload: Any, accept: str | None) -> Result:
        if self._waiting >= WAITING_MAX:
            raise _crowded("results that wait", WAITING_MAX)
        self._waiting += 1
        try:
            await exchange.unless_gone(self._turn.acquire())
        finally:
            self._waiting -= 1
        try:
            return await asyncio.to_thread(result_out, payload, accept, self._admit)
        finally:
            self._turn.release()

    def _admit(self) -> None:
        if self._kept_bytes > KEPT_BYTES_MAX:
            raise _crowded("results that are not read", KEPT_BYTES_MAX)


def _crowded(what: str, limit: int) -> Problem:
    return Problem(
        503,
        "limit",
        f"too much of other results is under way: {what} may be {limit}",
        object="results",
        limit=limit,
        next="try again, or ask for application/msgpack",
        headers=[(b"retry-after", b"1")],
    )
