"""What requests tell while they run: their output, and their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.gateway.problems import Problem
from forebay.gateway.routes.reads import number_of
from forebay.gateway.routes.streams import EventStream
from forebay.gateway.routes.waiting import one_value

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = ["events", "logs"]

OFFSET_MAX: Final = 2**63 - 1
UTF_8_BYTES_MAX: Final = 4
"""Of one character."""

_encode = msgspec.json.Encoder().encode


async def logs(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/logs`: what there is as text, or a stream that follows it."""
    id_ = await context.server.resolve(exchange.part)
    query = exchange.query()
    offset = number_of(query, "offset", 0, OFFSET_MAX) or 0
    await context.server.ask("status", id_)  # of one that does not exist there would be no output
    if not _wants_events(exchange):
        await _text(context, exchange, id_, offset)
        return
    last = _last_event_id(exchange)
    stream = _stream(exchange)
    await _serve(context, exchange, stream, _log_events(context, stream, id_, last or offset))


async def events(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/events`: its changes, until it has ended."""
    id_ = await context.server.resolve(exchange.part)
    stream = _stream(exchange)
    await _serve(context, exchange, stream, _request_events(context, stream, id_))


async def _text(context: Context, exchange: Exchange, id_: str, offset: int) -> None:
    await exchange.begin(200, [(b"content-type", b"text/plain; charset=utf-8")])
    if exchange.method != "HEAD":
        async with context.server.stream("logs", id_, offset, False) as items:
            async for _, piece in items:
                if piece:
                    await exchange.piece(bytes(piece))
    await exchange.piece(b"", more=False)


async def _log_events(context: Context, stream: EventStream, id_: str, offset: int) -> None:
    await stream.begin()
    rest = b""
    async with context.server.stream("logs", id_, offset, True) as items:
        async for start, piece in items:
            if start != offset + len(rest):  # the middle of a long log is not kept
                await _log_event(stream, offset, rest)
                rest, offset = b"", start
            whole = rest + bytes(piece)
            cut = len(whole) - _incomplete(whole)
            await _log_event(stream, offset, whole[:cut])
            rest, offset = whole[cut:], offset + cut
    await _log_event(stream, offset, rest)
    await stream.end()


async def _log_event(stream: EventStream, offset: int, piece: bytes) -> None:
    if piece:
        data = {"offset": offset, "text": piece.decode("utf-8", "replace")}
        await stream.send("log", _encode(data), str(offset + len(piece)))


def _incomplete(piece: bytes) -> int:
    """How many bytes at the end are the beginning of a character whose rest is to come."""
    for count in range(1, min(UTF_8_BYTES_MAX, len(piece) + 1)):
        byte = piece[-count]
        if byte < 0x80:
            return 0
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if count < length else 0
    return 0


async def _request_events(context: Context, stream: EventStream, id_: str) -> None:
    begun = False
    async with context.server.stream("events", id_) as items:
        async for event in items:
            if not begun:  # here, since the first item may be a refusal
                await stream.begin()
                begun = True
            number = event.get("seq")
            await stream.send(
                event["event"], _encode(event), None if number is None else str(number)
            )
    await stream.end()


async def _serve(
    context: Context, exchange: Exchange, stream: EventStream, work: Coroutine[Any, Any, None]
) -> None:
    if exchange.method == "HEAD":
        work.close()
        await exchange.answer(200, b"", [(b"content-type", b"text/event-stream; charset=utf-8")])
        return
    await context.streams.serve(exchange, stream, work)


def _stream(exchange: Exchange) -> EventStream:
    return EventStream(exchange, exchange.holder)


def _wants_events(exchange: Exchange) -> bool:
    return "text/event-stream" in (exchange.header(b"accept") or "")


def _last_event_id(exchange: Exchange) -> int | None:
    """The number of the last event that the client had; None: it had none.

    Raises:
        Problem: it is no number.
    """
    text = exchange.header(b"last-event-id") or one_value(exchange.query(), "cursor")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Problem(
            422,
            "invalid",
            f"the last event is {text!r:.100}",
            object="Last-Event-ID",
            next="give the id of an event, which is a number",
        )
    return int(text)
