"""Results: in the form that the client accepts, whole or a range, from memory or from a file."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from forebay.executor._internal import file_of
from forebay.gateway.http.limits import ANSWER_S
from forebay.gateway.problems import Problem, problem_of_failure
from forebay.gateway.results import Result
from forebay.gateway.routes.waiting import SOON_S, end_now, wait_of

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = ["result", "send_end"]

PIECE_BYTES: Final = 256 << 10
"""Of a result that is sent in pieces: read from its file, and in memory until it is sent."""

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)

Headers = Iterable[tuple[bytes, bytes]]


async def result(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/result`."""
    id_ = await context.server.resolve(exchange.part)
    seconds = wait_of(exchange)
    if seconds is None or seconds < SOON_S:  # in so short a time no end comes from the server
        end = await end_now(context.server, id_)
    else:
        end = await exchange.unless_gone(context.server.end_of(id_, seconds))
    if end is None:
        raise Problem(
            409,
            "not_ended",
            f"request {id_} has not ended",
            object=id_,
            next="ask again, or wait for it with ?wait=30",
            headers=[(b"retry-after", b"1")],
        )
    await send_end(context, exchange, id_, end)


async def send_end(
    context: Context, exchange: Exchange, id_: str, end: tuple[str, Any], headers: Headers = ()
) -> None:
    """Answer with the result of a request that has ended, or with what became of it instead.

    Args:
        context: of the gateway.
        exchange: to answer.
        id_: of the request.
        end: its status and its payload, as they travel.
        headers: of the answer, beside the content's.
    """
    status, payload = end
    is_file = type(payload) is list
    if is_file:
        path, size = payload
        payload = await asyncio.to_thread(file_of, path, size, id_)
    if payload is None:
        found = await context.server.end_of(id_, ANSWER_S, whole=True)
        if found is None:
            raise Problem(503, "server", f"the result of {id_} has not come", next="ask again")
        status, payload = found
    if status != "succeeded":
        failure = json.loads(bytes(payload))
        raise problem_of_failure(id_, failure)
    accept = exchange.header(b"accept")
    async with context.conversions.made(exchange, payload, accept) as made:
        is_whole = await _send(exchange, made, headers)
    if is_file and is_whole:  # else the client comes again for it
        context.server.taken(id_)


async def _send(exchange: Exchange, made: Result, headers: Headers) -> bool:
    """Send a result; whether the client was sent the whole of it.

    Raises:
        GoneError: the client left before the last piece.
    """
    length = made.length
    content: list[tuple[bytes, bytes]] = [(b"content-type", made.media_type.encode()), *headers]
    first, end, status = 0, length, 200
    if made.ranged:
        content.append((b"accept-ranges", b"bytes"))
        wanted = _range_of(exchange, length)
        if wanted is not None:
            first, end = wanted
            status = 206
            content.append((b"content-range", b"bytes %d-%d/%d" % (first, end - 1, length)))
    if end - first <= PIECE_BYTES:
        body = b"".join(made.parts)[first:end] if length <= PIECE_BYTES else _cut(made, first, end)
        await exchange.answer(status, body, content)
        return status == 200 and exchange.method != "HEAD"
    await exchange.begin(status, (*content, (b"content-length", b"%d" % (end - first))))
    if exchange.method == "HEAD":
        first = end
    while first < end:
        stop = min(end, first + PIECE_BYTES)
        # In a thread: the memory is a mapped file, whose pages may have to be read.
        await exchange.piece(await asyncio.to_thread(_cut, made, first, stop))
        first = stop
    await exchange.piece(b"", more=False)
    return status == 200 and exchange.method != "HEAD"


def _cut(made: Result, first: int, end: int) -> bytes:
    """The bytes from `first` to before `end`."""
    pieces = []
    for part in made.parts:
        if first < len(part) and end > 0:
            pieces.append(part[max(0, first) : end])
        first -= len(part)
        end -= len(part)
    return b"".join(pieces)


def _range_of(exchange: Exchange, length: int) -> tuple[int, int] | None:
    """The first byte and the one behind the last of a `Range`; None: the whole.

    A header that cannot be read, and one with several ranges, count as none (RFC 9110, 14.2), as
    does one with `If-Range`, since results have no validators.

    Raises:
        Problem: nothing of it is there.
    """
    header = exchange.header(b"range")
    if header is None or b"if-range" in exchange.headers or exchange.method not in ("GET", "HEAD"):
        return None
    match = _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, end = max(0, length - int(match[2])), length
    else:
        first, end = int(match[1]), int(match[2]) + 1 if match[2] else length
        if match[2] and end <= first:
            return None
    end = min(end, length)
    if first >= end:
        raise Problem(
            416,
            "invalid",
            f"Range {header!r:.100} is behind the {length} bytes of the result",
            object="Range",
            limit=length,
            headers=[(b"content-range", b"bytes */%d" % length)],
        )
    return first, end
