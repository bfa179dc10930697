"""Sessions of browsers: begun by a link or by a token, and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from forebay.gateway.http.limits import LOGIN_BYTES_MAX
from forebay.gateway.reading import read_as
from forebay.gateway.routes.pages import HOME
from forebay.gateway.routes.waiting import one_value

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = ["by_link", "by_token", "leave"]


class Login(msgspec.Struct, forbid_unknown_fields=True):
    """Whose session it is to be."""

    token: str


async def by_link(context: Context, exchange: Exchange) -> None:
    """`GET /login`: a link of `forebay serve` sets the cookie of a browser.

    HEAD does not use it: so ask programs that look at links which they have found in a text.
    """
    key = "" if exchange.method == "HEAD" else one_value(exchange.query(), "key") or ""
    headers = context.access.enter(exchange.scope["headers"], key)
    await exchange.answer(303, b"", [*headers, (b"location", HOME)])


async def by_token(context: Context, exchange: Exchange) -> None:
    """`POST /login`: the page sends a token that was typed there, and gets its cookie."""
    context.access.check_own_page(exchange.scope["headers"])
    login = read_as(Login, await exchange.body(LOGIN_BYTES_MAX))
    await exchange.empty(204, context.access.enter_by_token(login.token))


async def leave(context: Context, exchange: Exchange) -> None:
    """`POST /logout`: the session of the cookie ends."""
    await exchange.empty(204, context.access.leave(exchange.scope["headers"]))
