"""What requests that are generators yield: the items that there are, or a stream that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.gateway.problems import Problem
from forebay.gateway.results import result_out
from forebay.gateway.routes.following import serve_stream, stream_of, wants_events
from forebay.gateway.routes.reads import number_of
from forebay.gateway.routes.waiting import one_value

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange
    from forebay.gateway.routes.streams import EventStream

__all__ = ["items"]

NUMBER_MAX: Final = 2**63 - 1
LINES: Final = b"application/x-ndjson"

_JSON: Final = "application/json"
_encode = msgspec.json.Encoder().encode


async def items(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/items`: what there is as lines of JSON, or events that follow it."""
    id_ = await context.server.resolve(exchange.part)
    query = exchange.query()
    epoch = number_of(query, "epoch", 1, NUMBER_MAX)
    after = number_of(query, "after", 0, NUMBER_MAX) or 0
    await context.server.ask("status", id_)  # of one that does not exist there would be no item
    if not wants_events(exchange):
        await _lines(context, exchange, (id_, epoch, after, False))
        return
    last = _last_item(exchange)
    if last is not None:
        epoch, after = last
    stream = stream_of(exchange)
    work = _events(context, stream, (id_, epoch, after, True))
    await serve_stream(context, exchange, stream, work)


async def _lines(context: Context, exchange: Exchange, call: tuple[Any, ...]) -> None:
    await exchange.begin(200, [(b"content-type", LINES)])
    if exchange.method != "HEAD":
        async with context.server.stream("items", *call) as messages:
            async for epoch, first, blobs in messages:
                lines = [told for _, told in _told(epoch, first, blobs)]
                if lines:
                    await exchange.piece(b"".join(line + b"\n" for line in lines))
    await exchange.piece(b"", more=False)


async def _events(context: Context, stream: EventStream, call: tuple[Any, ...]) -> None:
    await stream.begin()
    known = call[1]
    async with context.server.stream("items", *call) as messages:
        async for epoch, first, blobs in messages:
            if epoch != known:
                known = epoch
                await stream.send("epoch", _encode({"epoch": epoch}), f"{epoch}-{first - 1}")
            for number, told in _told(epoch, first, blobs):
                await stream.send("item", told, f"{epoch}-{number}")
    status = await context.server.ask("status", call[0])
    await stream.send("status", _encode({"status": status["status"]}))
    await stream.end()


def _told(epoch: int, first: int, blobs: Any) -> list[tuple[int, bytes]]:
    """Each item of a message with its number, as a line of JSON."""
    if type(blobs) is not list:
        blobs = [blobs]
    told = []
    for number, blob in enumerate(blobs, first):
        try:
            (item,) = result_out(blob, _JSON).parts
        except Problem:  # it has no form in JSON
            line = _encode({"epoch": epoch, "number": number, "bytes": len(blob)})
        else:
            line = b'{"epoch":%d,"number":%d,"item":%b}' % (epoch, number, bytes(item))
        told.append((number, line))
    return told


def _last_item(exchange: Exchange) -> tuple[int, int] | None:
    """Epoch and number of the last item that the client had; None: it had none.

    Raises:
        Problem: these are no such numbers.
    """
    text, name = exchange.header(b"last-event-id"), "Last-Event-ID"
    if not text:
        text, name = one_value(exchange.query(), "cursor"), "cursor"
    if not text:
        return None
    epoch, dash, number = text.partition("-")
    is_number = all(it.isascii() and it.isdigit() and len(it) < 19 for it in (epoch, number))
    if not dash or not is_number:
        raise Problem(
            422,
            "invalid",
            f"{name} is {text!r:.100}",
            object=name,
            next="give the id of an event, which is an epoch and a number, as in 1-57",
        )
    return int(epoch), int(number)
