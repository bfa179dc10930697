"""What the head of a request says beyond its headers: its target, and how its body is written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import httptools

from forebay.gateway.problems import Problem

__all__ = ["Target", "check_coding", "length_of", "malformed", "target_of"]

Headers = list[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

_ABSOLUTE: Final = re.compile(rb"(?:http|https)://([^/?#]*)", re.IGNORECASE)


class Target(NamedTuple):
    """Where a request goes.

    Attributes:
        path: as it came, with its escapes.
        query: as it came; empty where there is none.
        headers: of the request; its Host is that of the target, where the target has one.
    """

    path: bytes
    query: bytes
    headers: Headers


def target_of(url: bytes, headers: Headers) -> Target:
    """The target of a request, which is a path, or a whole URL as proxies are sent it.

    The authority of a whole URL counts instead of the Host (RFC 9112, section 3.2.2), so that both
    sides of a proxy think of the same server.

    Raises:
        Problem: 400; it cannot be read, or is a URL of another kind.
    """
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError as error:
        raise malformed(error) from None
    if parsed.schema is not None:
        found = _ABSOLUTE.match(url)
        if found is None:
            raise malformed("its target is no path and no URL of http or https")
        headers = [(n, found[1] if n == b"host" else value) for n, value in headers]
    return Target(parsed.path or b"/", parsed.query or b"", headers)


def check_coding(headers: Iterable[tuple[bytes, bytes]], version: str) -> None:
    """Refuse a body that a proxy may have read otherwise (RFC 9112, section 6.1).

    Raises:
        Problem: 400; it has another coding than chunks, or a coding in HTTP/1.0, which has none.
    """
    for name, value in headers:
        if name == b"transfer-encoding":
            if version != "1.1":
                raise malformed("HTTP/1.0 has no Transfer-Encoding")
            if value.strip().lower() != b"chunked":
                raise malformed(f"Transfer-Encoding {value[:100].decode('latin-1')!r}")


def length_of(value: bytes) -> int:
    """A Content-Length that the parser has taken; it may have more zeros than `int` reads."""
    return int(value.strip().lstrip(b"0") or b"0")


def malformed(why: object) -> Problem:
    """The refusal of what cannot be read."""
    return Problem(400, "malformed", f"this is no HTTP/1.1: {why}", next="send HTTP/1.1")
