"""One call of a webhook: a POST over a connection of its own, and the status of its answer.

Written on streams rather than `http.client`, whose time limit is for each read and write: under the
one limit of the caller no receiver holds it longer by sending a byte now and then. Redirects are
not followed, and no proxy is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

ANSWER_BYTES_MAX: Final = 65_536
"""Of an answer, its head included, are read at most."""
SAID_CHARS: Final = 200
"""Of an answer that refuses."""
REST_S: Final = 1.0
"""How long the body of an answer may take whose status is known: it is for people."""


async def post(url: str, headers: Mapping[str, str], body: bytes) -> tuple[bool, str]:
    """Whether the answer was 2xx, and what it said.

    Raises:
        OSError: it cannot be reached, or its certificate is not verified.
        ValueError, EOFError: what it answered is not HTTP.
    """
    parts = urlsplit(url)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    port = parts.port or (443 if tls else 80)
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        port,
        ssl=tls,
        limit=ANSWER_BYTES_MAX // 4,
        happy_eyeballs_delay=0.25,  # an IPv6 address that leads nowhere does not take the time
    )
    try:
        writer.write(_head(parts.netloc, parts.path, parts.query, headers, len(body)) + body)
        await writer.drain()
        status, reason, length = await _status(reader)
        said = await _rest(reader, length)
    finally:
        writer.transport.abort()
    return 200 <= status < 300, f"{status} {reason}".strip() + (f": {said}" if said else "")


def _head(host: str, path: str, query: str, headers: Mapping[str, str], body_bytes: int) -> bytes:
    target = (path or "/") + (f"?{query}" if query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        f"content-length: {body_bytes}",
        "user-agent: forebay",
        "connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _status(reader: asyncio.StreamReader) -> tuple[int, str, int | None]:
    """The status, its reason, and the length of the body where the answer says it."""
    left = ANSWER_BYTES_MAX
    while True:
        first = await reader.readline()
        version, _, rest = first.decode("latin-1").partition(" ")
        if not first:
            raise EOFError("it closed the connection without an answer")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ValueError("it answered with something that is not HTTP/1.1")
        status, reason = int(rest[:3]), rest[3:].strip()[:SAID_CHARS]
        length = None
        while (line := await reader.readline()) not in (b"\r\n", b"\n"):
            left -= len(line)
            if not line or left < 0:
                raise ValueError("the head of its answer has no end")
            name, _, value = line.decode("latin-1").partition(":")
            if name.lower() == "content-length" and value.strip().isdigit():
                length = int(value)
        if status >= 200:
            return status, reason, length


async def _rest(reader: asyncio.StreamReader, length: int | None) -> str:
    """The beginning of the body; what does not come soon is left."""
    wanted = ANSWER_BYTES_MAX if length is None else min(length, ANSWER_BYTES_MAX)
    body = b""
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(REST_S):
            while len(body) < wanted and (data := await reader.read(wanted - len(body))):
                body += data
    return body[: 4 * SAID_CHARS].decode(errors="replace")[:SAID_CHARS].strip()
