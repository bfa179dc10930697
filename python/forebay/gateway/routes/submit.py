"""Submissions: one, by its name or in a body that names it, and many at once."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.errors import Error
from forebay.gateway.http.exchange import JSON
from forebay.gateway.http.limits import BATCH_MAX
from forebay.gateway.media import body_form
from forebay.gateway.problems import Problem, problem_of
from forebay.gateway.reading import read_as
from forebay.gateway.routes.idempotency import (
    arguments_digest,
    checked_key,
    mismatch,
    now_ms,
    same_arguments,
    scoped_key,
)
from forebay.gateway.routes.options import from_object, from_query
from forebay.gateway.routes.results import send_end
from forebay.gateway.routes.waiting import preferred_wait

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.forms import Forms
    from forebay.gateway.http.exchange import Exchange
    from forebay.gateway.tokens import Token

__all__ = ["submit", "submit_many", "submit_named"]

LARGE_BODY_BYTES: Final = 1 << 20
"""10 ms of conversion, and more where it has bytes or arrays in many places."""

_ACCEPTED: Final = b'{"schema":1,"id":"%b","name":%b,"status":"queued"}'
_REPLAYED: Final = (b"idempotency-replayed", b"true")

_encode = msgspec.json.Encoder().encode


_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
"""Of W3C Trace Context, section 3.2; what is none is left out, as that asks for."""


class Named(msgspec.Struct, forbid_unknown_fields=True):
    """A submission as a body has it."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"")
    options: Any = None
    idempotency_key: str | None = None


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    """Several of them, each still to be read, so that one that is wrong spoils no other."""

    requests: list[msgspec.Raw]


async def submit(context: Context, exchange: Exchange) -> None:
    """`POST /v1/requests/{name}`: the body is the arguments, the query the options."""
    name = exchange.part
    body = await exchange.body()
    form = body_form(exchange.header(b"content-type"))
    options = from_query(exchange.query()) if exchange.scope["query_string"] else {}
    _trace(exchange, options)
    blob = await _arguments(await context.forms(), name, body, form)
    key = exchange.header(b"idempotency-key")
    id_, replayed = await accept(context, exchange.holder, name, blob, options, key)
    await _answer(context, exchange, id_, name, replayed=replayed)


async def submit_named(context: Context, exchange: Exchange) -> None:
    """`POST /v1/requests`: the body names the request, and has its options."""
    body = await exchange.body()
    form = body_form(exchange.header(b"content-type"))
    one = read_as(Named, body, form)
    if one.idempotency_key is None:
        one.idempotency_key = exchange.header(b"idempotency-key")
    id_, replayed = await _accept_named(context, exchange, one, form)
    await _answer(context, exchange, id_, one.name, replayed=replayed)


async def submit_many(context: Context, exchange: Exchange) -> None:
    """`POST /v1/batch`: each is accepted or refused by itself; the answers are in their order."""
    body = await exchange.body()
    form = body_form(exchange.header(b"content-type"))
    batch = read_as(Batch, body, form).requests
    if len(batch) > BATCH_MAX:
        raise Problem(
            413,
            "limit",
            f"a batch may have {BATCH_MAX} requests",
            object="requests",
            limit=BATCH_MAX,
            value=len(batch),
            next="send several batches",
        )
    await context.forms()  # once, not by each

    async def answer(raw: msgspec.Raw) -> dict[str, Any]:
        try:
            one = read_as(Named, raw, form)
            id_, replayed = await _accept_named(context, exchange, one, form)
        except Exception as error:
            return {"error": problem_of(error).as_map()}
        return {"id": id_, "replayed": True} if replayed else {"id": id_}

    async with asyncio.TaskGroup() as group:
        answers = [group.create_task(answer(raw)) for raw in batch]
    await exchange.json({"schema": 1, "requests": [one.result() for one in answers]})


def _trace(exchange: Exchange, options: dict[str, Any]) -> None:
    """Keep the trace that a client names with the request."""
    if b"traceparent" in exchange.headers:
        given = exchange.headers[b"traceparent"].decode("latin-1")
        if _TRACEPARENT.fullmatch(given):
            options["traceparent"] = given


async def accept(
    context: Context,
    token: Token,
    name: str,
    blob: bytes,
    options: dict[str, Any],
    key: str | None,
) -> tuple[str, bool]:
    """Submit a request; its id once it is on disk, and whether it had been submitted before.

    Raises:
        Problem: its key is that of another submission, or of one under way; or there are too many.
    """
    submit, submitter = context.server.submit, token.name
    context.rates.take(submitter)
    if token.quota is not None:
        options["quota"] = token.quota
    if key is None:
        return await submit(name, blob, options, by=submitter, repeatable=False), False
    scoped = scoped_key(submitter, name, checked_key(key))
    options["idempotency"] = scoped
    idempotency = context.idempotency
    idempotency.begin(scoped)
    try:
        began_ms = now_ms()
        id_ = await submit(name, blob, options, by=submitter, repeatable=True)
        digest = arguments_digest(blob)
        if idempotency.known(scoped, id_, digest):
            return id_, True
        replayed = idempotency.is_from_before(id_, began_ms)
        if replayed:
            kept = (await context.server.ask("arguments", id_))["arguments"]
            if not same_arguments(kept, blob):
                raise mismatch(id_)
        idempotency.note(scoped, id_, digest)
        return id_, replayed
    finally:
        idempotency.end(scoped)


async def _arguments(forms: Forms, name: str, body: bytes | msgspec.Raw, form: str) -> bytes:
    """The arguments as they travel; large ones are made in a thread, beside other requests."""
    if len(memoryview(body)) < LARGE_BODY_BYTES:
        return forms.arguments_in(name, body, form)
    return await asyncio.to_thread(forms.arguments_in, name, body, form)


async def _accept_named(
    context: Context, exchange: Exchange, one: Named, form: str
) -> tuple[str, bool]:
    forms = await context.forms()
    blob = await _arguments(forms, one.name, one.arguments, form)
    options = dict(from_object(one.options))
    _trace(exchange, options)
    return await accept(context, exchange.holder, one.name, blob, options, one.idempotency_key)


async def _answer(
    context: Context, exchange: Exchange, id_: str, name: str, *, replayed: bool
) -> None:
    """Answer 202, or with the result where the client prefers to wait and it ends in time.

    Whatever comes of the wait, the request is accepted: a refusal of its result has its place, and
    where the end or the result has not come the answer is 202.
    """
    id_bytes = id_.encode()
    headers = [JSON, (b"location", b"/v1/requests/" + id_bytes)]
    if replayed:
        headers.append(_REPLAYED)
    seconds = preferred_wait(exchange) if b"prefer" in exchange.headers else None
    if seconds and await _sent_end(context, exchange, id_, seconds, headers[1:]):
        return
    await exchange.answer(202, _ACCEPTED % (id_bytes, _encode(name)), headers)


async def _sent_end(
    context: Context,
    exchange: Exchange,
    id_: str,
    seconds: float,
    headers: list[tuple[bytes, bytes]],
) -> bool:
    """Wait for the end of a request, and send it; False: there is none to send yet.

    Raises:
        Problem: it failed, or there is no such form of its result; with `headers`.
    """
    try:
        end = await exchange.unless_gone(context.server.end_of(id_, seconds))
        if end is not None:
            await send_end(context, exchange, id_, end, headers)
    except Problem as problem:
        if problem.status == 503:
            return False
        problem.headers = (*problem.headers, *headers)
        raise
    except Error:
        if exchange.answered:
            raise
        return False
    return end is not None
