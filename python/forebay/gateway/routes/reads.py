"""What is known of requests: pages of them, one of them, its arguments and its output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from forebay.gateway.asgi.ids import is_beginning
from forebay.gateway.http.limits import PAGE_MAX
from forebay.gateway.problems import Problem
from forebay.gateway.routes.waiting import one_value, wait_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = ["arguments", "listing", "number_of", "show", "status", "why"]

PAGE_DEFAULT: Final = 100
_FILTERS: Final = ("name", "submitter", "lane", "since", "until", "parent")
_KNOWN: Final = frozenset({*_FILTERS, "status", "limit", "cursor"})


async def listing(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests`: a page, the newest first."""
    query = exchange.query()
    for name in query:
        if name not in _KNOWN:
            raise _wrong(name, f"there is no filter {name!r:.100}", ", ".join(sorted(_KNOWN)))
    filters: dict[str, Any] = {
        name: value for name in _FILTERS if (value := one_value(query, name)) is not None
    }
    if "status" in query:
        filters["status"] = [word for text in query["status"] for word in text.split(",")]
    limit = number_of(query, "limit", 1, PAGE_MAX)
    before = _cursor_of(query)
    page = await context.server.ask(
        "list", filters, PAGE_DEFAULT if limit is None else limit, before
    )
    rows = page["requests"]
    next_ = rows[-1]["id"] if page["more"] and rows else None
    await exchange.json({"schema": 1, "requests": rows, "next": next_})


async def status(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}`: where it stands; with `?wait` when it has ended."""
    id_ = await context.server.resolve(exchange.part)
    seconds = wait_of(exchange)
    if seconds:
        await exchange.unless_gone(context.server.end_of(id_, seconds))
    await exchange.json(await context.server.ask("status", id_))


async def show(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/show`: all that is known of it."""
    await exchange.json(await context.server.ask("show", await _id(context, exchange)))


async def why(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/why`: why it waits, is slow or died."""
    await exchange.json(await context.server.ask("why", await _id(context, exchange)))


async def arguments(context: Context, exchange: Exchange) -> None:
    """`GET /v1/requests/{id}/arguments`: as they were submitted."""
    told = await context.server.ask("arguments", await _id(context, exchange))
    blob = told["arguments"]
    if not blob:
        told["arguments"] = {}
        await exchange.json(told)
        return
    async with context.conversions.made(exchange, blob, "application/json") as made:
        (text,) = made.parts  # JSON is made whole
        told["arguments"] = msgspec.Raw(text)
        await exchange.json(told)


def number_of(query: Mapping[str, list[str]], name: str, least: int, most: int) -> int | None:
    """A whole number of the query; None where it is not given.

    Raises:
        Problem: it is none, or outside of what is allowed.
    """
    text = one_value(query, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise _wrong(name, f"{name} is {text!r:.100}", f"a number from {least} to {most}")
    return int(text)


def _cursor_of(query: Mapping[str, list[str]]) -> str | None:
    """The id behind which a page begins; None: the first page."""
    text = one_value(query, "cursor")
    if text is not None and not is_beginning(text):
        raise _wrong("cursor", f"cursor is {text!r:.100}", "`next` of the page before")
    return text


async def _id(context: Context, exchange: Exchange) -> str:
    return await context.server.resolve(exchange.part)


def _wrong(name: str, message: str, allowed: str) -> Problem:
    return Problem(
        422, "invalid", message, object=name[:100], limit=allowed, next=f"give {allowed}"
    )
