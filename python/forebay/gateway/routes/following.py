"""What requests tell while they run: their output, and their events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
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

__all__ = ["begun", "events", "feed", "logs", "serve_stream", "stream_of", "wants_events"]

OFFSET_MAX: Final = 2**63 - 1
REFUSAL_S: Final = 0.2
"""For a refusal of a reader, which comes with the next turn of the server."""

_FILTERS: Final = ("names", "ids", "submitter", "events", "cursor")

UTF_8_BYTES_MAX: Final = 4
"""Of one character."""

_encode = msgspec.json.Encoder().encode


async def logs(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/logs`: what there is as text, or a stream that follows it."""
    id_ = await context.server.resolve(exchange.part)
    query = exchange.query()
    offset = number_of(query, "offset", 0, OFFSET_MAX) or 0
    await context.server.ask("status", id_)  # of one that does not exist there would be no output
    if not wants_events(exchange):
        await _text(context, exchange, id_, offset)
        return
    last = _last_event_id(exchange)
    stream = stream_of(exchange)
    await serve_stream(context, exchange, stream, _log_events(context, stream, id_, last or offset))


async def events(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/events`: its changes, until it has ended."""
    id_ = await context.server.resolve(exchange.part)
    stream = stream_of(exchange)
    last = _last_event_id(exchange)
    await serve_stream(context, exchange, stream, _events(context, stream, "events", id_, last))


async def feed(context: Context, exchange: Exchange) -> None:
    """`GET /v1/events`: what happens to all requests; the query is the filter of the feed."""
    wanted = await _filter_of(context, exchange)
    stream = stream_of(exchange)
    call = ("feed", wanted, _last_event_id(exchange))
    await serve_stream(context, exchange, stream, _events(context, stream, *call))


async def _filter_of(context: Context, exchange: Exchange) -> dict[str, Any]:
    query = exchange.query()
    for name in query:
        if name not in _FILTERS:
            raise Problem(
                422,
                "invalid",
                f"there is no filter {name!r:.100}",
                object=name[:100],
                limit=", ".join(_FILTERS),
            )
    wanted: dict[str, Any] = {
        name: [word for text in query[name] for word in text.split(",")]
        for name in ("names", "ids", "events")
        if name in query
    }
    if "ids" in wanted:
        wanted["ids"] = [await context.server.resolve(text) for text in wanted["ids"]]
    submitter = one_value(query, "submitter")
    return wanted if submitter is None else {**wanted, "submitter": submitter}


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


async def _events(context: Context, stream: EventStream, *call: Any) -> None:
    """Send the events of a stream of the server, whose items are one each or lists of them."""
    async with (
        context.server.stream(*call) as items,
        aclosing(begun(stream, items)) as told,
    ):
        async for item in told:
            for event in item if isinstance(item, list) else (item,):
                await stream.send(event["event"], _encode(event), _number_of(event, item))
    await stream.end()


async def begun(stream: EventStream, items: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """The items of a stream of the server; the answer begins once they were not refused.

    Raises:
        what they are refused with.
    """
    first = asyncio.ensure_future(anext(items))
    try:
        # A refusal comes at once; of the others nobody knows when.
        await asyncio.wait((first,), timeout=REFUSAL_S)
        if not first.done():
            await stream.begin()
        item = await first
        await stream.begin()
        while True:
            yield item
            item = await anext(items)
    except StopAsyncIteration:
        return
    finally:
        first.cancel()
        await asyncio.wait((first,))  # what it waits in must not run where `items` is closed


def _number_of(event: dict[str, Any], item: Any) -> str | None:
    """Behind which a client goes on that has had an event; None: behind the one before it.

    A gap of all requests' events is followed by what is kept behind it. One of a single request's
    is followed by how that stands, which a client that leaves between them still has to be told.
    """
    number = event.get("seq")
    if number is None and isinstance(item, list):
        number = event["last"]
    return None if number is None else str(number)


async def serve_stream(
    context: Context, exchange: Exchange, stream: EventStream, work: Coroutine[Any, Any, None]
) -> None:
    """Answer with a stream, until `work` ends; a HEAD with its head."""
    if exchange.method == "HEAD":
        work.close()
        await exchange.answer(200, b"", [(b"content-type", b"text/event-stream; charset=utf-8")])
        return
    await context.streams.serve(exchange, stream, work)


def stream_of(exchange: Exchange) -> EventStream:
    """The stream that answers a request."""
    return EventStream(exchange, exchange.holder)


def wants_events(exchange: Exchange) -> bool:
    """Whether a client asks for server-sent events."""
    return "text/event-stream" in (exchange.header(b"accept") or "")


def _last_event_id(exchange: Exchange) -> int | None:
    """The number of the last event that the client had; None: it had none.

    Raises:
        Problem: it is no number.
    """
    text, name = exchange.header(b"last-event-id"), "Last-Event-ID"
    if not text:
        text, name = one_value(exchange.query(), "cursor"), "cursor"
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Problem(
            422,
            "invalid",
            f"{name} is {text!r:.100}",
            object=name,
            next="give the id of an event, which is a number",
        )
    return int(text)
