"""What requests that are generators yield: the items that there are, or a stream that follows."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from forebay.errors import Error
from forebay.gateway.media import JSON, MSGPACK
from forebay.gateway.problems import Problem, problem_of
from forebay.gateway.results import result_out
from forebay.gateway.routes.following import begun, serve_stream, stream_of, wants_events
from forebay.gateway.routes.reads import number_of
from forebay.gateway.routes.waiting import one_value

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange
    from forebay.gateway.routes.streams import EventStream

__all__ = ["items"]

NUMBER_MAX: Final = 2**63 - 1
LINES: Final = b"application/x-ndjson"

_FORMS: Final = ("json", "msgpack")
"""In which an item is told; MessagePack, which has every value, as text in base64."""

_FLAGS: Final = ("true", "false")
_encode = msgspec.json.Encoder().encode


class _Form(NamedTuple):
    """How items are told.

    Attributes:
        is_packed: as MessagePack, not as JSON.
        max_bytes: what is larger is told by its size; None: everything is told.
    """

    is_packed: bool
    max_bytes: int | None

    def member(self, blob: Any) -> bytes:
        """What a line says of an item: the item, or its size."""
        if self.max_bytes is None or len(blob) <= self.max_bytes:
            try:
                content = b"".join(result_out(blob, MSGPACK if self.is_packed else JSON).parts)
            except Problem:
                pass  # it has no such form
            else:
                if self.is_packed:
                    return b'"msgpack":"%b"' % b2a_base64(content, newline=False)
                return b'"item":%b' % content
        return b'"bytes":%d' % len(blob)


async def items(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/items`: what there is as lines of JSON, or events that follow it."""
    id_ = await context.server.resolve(exchange.part)
    query = exchange.query()
    epoch = number_of(query, "epoch", 1, NUMBER_MAX)
    after = number_of(query, "after", 0, NUMBER_MAX) or 0
    form = _Form(
        _word_of(query, "form", _FORMS) == "msgpack",
        number_of(query, "max_bytes", 0, NUMBER_MAX),
    )
    follow = _word_of(query, "follow", _FLAGS) == "true"
    limit = number_of(query, "limit", 1, NUMBER_MAX) or NUMBER_MAX
    await context.server.ask("status", id_)  # of one that does not exist there would be no item
    if not wants_events(exchange):
        await _lines(context, exchange, (id_, epoch, after, False), form, limit)
        return
    last = _last_item(exchange)
    if last is not None:
        epoch, after = last
    stream = stream_of(exchange)
    work = _events(context, stream, (id_, epoch, after, follow), form)
    await serve_stream(context, exchange, stream, work)


async def _lines(
    context: Context, exchange: Exchange, call: tuple[Any, ...], form: _Form, left: int
) -> None:
    """At most `left` of them."""
    await exchange.begin(200, [(b"content-type", LINES)])
    if exchange.method != "HEAD":
        async with context.server.stream("items", *call) as messages:
            async for message in messages:
                lines = [told for _, told in _told(form, *message)][:left]
                if lines:
                    await exchange.piece(b"".join(line + b"\n" for line in lines))
                left -= len(lines)
                if not left:
                    break
    await exchange.piece(b"", more=False)


async def _events(
    context: Context, stream: EventStream, call: tuple[Any, ...], form: _Form
) -> None:
    known = call[1]
    try:
        async with (
            context.server.stream("items", *call) as messages,
            aclosing(begun(stream, messages)) as told,
        ):
            async for message in told:
                epoch, first, _ = message
                if epoch != known:
                    known = epoch
                    await stream.send("epoch", _encode({"epoch": epoch}), f"{epoch}-{first - 1}")
                for number, item in _told(form, *message):
                    await stream.send("item", item, f"{epoch}-{number}")
    except Error as error:
        if not stream.has_begun or getattr(error, "code", None) is None:
            raise  # nothing was told yet, or it was no refusal: the server is gone
        await stream.send("refused", problem_of(error).body())
    else:
        status = await context.server.ask("status", call[0])
        await stream.begin()  # where there was no item
        await stream.send("status", _encode({"status": status["status"]}))
    await stream.end()


def _told(form: _Form, epoch: int, first: int, blobs: Any) -> list[tuple[int, bytes]]:
    """Each item of a message with its number, as a line of JSON."""
    if type(blobs) is not list:
        blobs = [blobs]
    told = []
    for number, blob in enumerate(blobs, first):
        member = form.member(blob)
        told.append((number, b'{"epoch":%d,"number":%d,%b}' % (epoch, number, member)))
    return told


def _word_of(query: Mapping[str, list[str]], name: str, words: tuple[str, ...]) -> str:
    """One of some words of the query; the first where it is not given.

    Raises:
        Problem: it is another one.
    """
    text = one_value(query, name)
    if text is None:
        return words[0]
    if text not in words:
        allowed = " or ".join(words)
        raise Problem(
            422,
            "invalid",
            f"{name} is {text!r:.100}",
            object=name,
            limit=allowed,
            next=f"give {allowed}",
        )
    return text


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
