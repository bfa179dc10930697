"""The page of the dashboard, for browsers: its files, which have no data in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from forebay.gateway.problems import Problem

if TYPE_CHECKING:
    from forebay.gateway.asgi.context import Context
    from forebay.gateway.http.exchange import Exchange

__all__ = ["HOME", "file", "home", "index"]

HOME: Final = b"ui/"
"""From a path of one piece, so that a proxy may put a path of its own before ours."""

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    b" require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What the page may do (Content Security Policy level 3): nothing but use this server.

The last two refuse every text that is set as markup (Trusted Types), whoever sets it.
"""

PROTECTIVE: Final = (
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every file; every answer of the gateway has `X-Content-Type-Options` as well."""


async def home(context: Context, exchange: Exchange) -> None:
    """`GET /`, `GET /ui`: the page is at `/ui/`, below which are the files that it names."""
    await exchange.answer(303, b"", [(b"location", HOME)])


async def index(context: Context, exchange: Exchange) -> None:
    """`GET /ui/`: the page."""
    from forebay.gateway.dashboard.files import INDEX

    await _send(exchange, INDEX)


async def file(context: Context, exchange: Exchange) -> None:
    """`GET /ui/{name}`: a file of the page."""
    await _send(exchange, exchange.part)


async def _send(exchange: Exchange, name: str) -> None:
    from forebay.gateway.dashboard.files import page_files  # takes memory that few gateways need

    found = page_files().get(name)
    if found is None:
        raise Problem(
            404,
            "unknown",
            f"the page has no file {name!r:.100}",
            object="path",
            value=name[:100],
            next="open /ui/",
        )
    # A browser asks each time whether what it has is the newest: a new version has no old parts.
    kept = ((b"etag", found.tag), (b"cache-control", b"no-cache"), (b"vary", b"accept-encoding"))
    if _has(exchange.header(b"if-none-match"), found.tag):
        await exchange.empty(304, (*PROTECTIVE, *kept))
        return
    headers = [*PROTECTIVE, *kept, (b"content-type", found.media_type)]
    body = found.content
    if found.packed is not None and _takes_gzip(exchange.header(b"accept-encoding")):
        body = found.packed
        headers.append((b"content-encoding", b"gzip"))
    await exchange.answer(200, body, headers)


def _has(tags: str | None, tag: bytes) -> bool:
    """Whether a list of tags has this one, by weak comparison (RFC 9110, section 8.8.3.2)."""
    if tags is None:
        return False
    wanted = tag.decode().removeprefix("W/")
    return any(one.strip().removeprefix("W/") in ("*", wanted) for one in tags.split(","))


def _takes_gzip(codings: str | None) -> bool:
    """Whether `Accept-Encoding` names gzip, and not with the weight 0 (RFC 9110, 12.5.3)."""
    for coding in (codings or "").split(","):
        name, _, weight = coding.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").rstrip("0.") != "q="
    return False
