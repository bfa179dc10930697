"""Answers to submissions and of results on real connections, against a written server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import msgpack

from forebay.errors import BrokenError
from forebay.gateway.asgi.application import Application
from forebay.gateway.metrics.answered import HttpMetrics
from forebay.gateway.routes.conversions import Conversions
from forebay.gateway.routes.every import TABLE
from forebay.gateway.routes.idempotency import Idempotency
from forebay.gateway.routes.streams import Streams
from forebay.gateway.token import Role, Token
from tests.gateway.http.connection_serving import UNREAD_BYTES, Served, serve, until

ID = "1123456789ab"
"""Of a time to come: it is not that of an earlier submission."""
TOKEN = Token("ann", Role.ADMIN, b"", 0.0)


class Server:
    """Accepts every submission, and answers a wait with `end`, or raises it."""

    def __init__(self, end: Any = None) -> None:
        self.end = end
        self.told: list[str] = []
        self.streams = 0

    async def resolve(self, text: str) -> str:
        return text

    async def submit(self, *_: Any, **__: Any) -> str:
        return ID

    async def end_of(self, id_: str, seconds: float | None, *, whole: bool = False) -> Any:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    def taken(self, id_: str) -> None:
        self.told.append(id_)

    @asynccontextmanager
    async def stream(self, *_: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """A feed in which nothing happens."""

        async def items() -> Any:
            await asyncio.sleep(60)
            yield []

        self.streams += 1
        try:
            async with contextlib.aclosing(items()) as silent:
                yield silent
        finally:
            self.streams -= 1


def ask(server: Server, test: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a gateway of a server."""

    async def forms() -> Any:
        return SimpleNamespace(arguments_in=lambda *_: b"\x80")

    access: Any = SimpleNamespace(check=lambda *_: TOKEN, lasts=lambda *_: True)
    context: Any = SimpleNamespace(
        server=server,
        forms=forms,
        rates=SimpleNamespace(take=lambda name: None),
        idempotency=Idempotency(),
        access=access,
        streams=Streams(access),
        conversions=Conversions(),
        metrics=HttpMetrics(),
    )
    serve(Application(context, TABLE), test)


def head(method: str, path: str, *lines: str) -> bytes:
    """A request without a body."""
    return "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", *lines, "")).encode()


async def answer_of(served: Served, method: str, path: str, *lines: str) -> tuple[bytes, bytes]:
    """The head and the body of an answer."""
    reader, writer = await served.connect()
    writer.write(head(method, path, "Host: x", "Connection: close", *lines))
    told, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return told, body


SUBMISSION = ("POST", "/v1/requests/add", "Content-Length: 0")
PLACE = b"\r\nlocation: /v1/requests/" + ID.encode()


@pytest.mark.parametrize("end", [BrokenError("the server is gone"), None])
def test_a_submission_whose_wait_breaks_is_accepted(end: Any) -> None:
    """It is on disk: 503 would have the client submit it again."""

    async def test(served: Served) -> None:
        told, body = await answer_of(served, *SUBMISSION, "Prefer: wait=5")
        assert told.startswith(b"HTTP/1.1 202 ")
        assert PLACE in told
        assert json.loads(body)["id"] == ID

    ask(Server(end), test)


@pytest.mark.parametrize(
    ("end", "accept", "status"),
    [
        (("failed", b'{"kind":"raised","message":"no"}'), "*/*", 422),
        (("succeeded", msgpack.encode(1)), "image/png", 406),
    ],
)
def test_the_refusal_of_a_result_has_its_place(end: Any, accept: str, status: int) -> None:
    """The client finds what it has submitted, and whether it had been before."""

    async def test(served: Served) -> None:
        lines = (*SUBMISSION, "Prefer: wait=5", f"Accept: {accept}", "Idempotency-Key: k")
        told, _ = await answer_of(served, *lines)
        assert told.startswith(b"HTTP/1.1 %d " % status)
        assert PLACE in told
        assert b"idempotency-replayed" not in told
        told, _ = await answer_of(served, *lines)
        assert PLACE in told
        assert b"\r\nidempotency-replayed: true" in told

    ask(Server(end), test)


@pytest.mark.parametrize("wish", ["wait=soon", "wait", "wait=-1", "wait=nan", "wait=0"])
def test_a_preference_that_cannot_be_read_is_none(wish: str) -> None:
    """RFC 7240 asks for that; the request was submitted in any case."""

    async def test(served: Served) -> None:
        told, _ = await answer_of(served, *SUBMISSION, f"Prefer: {wish}")
        assert told.startswith(b"HTTP/1.1 202 ")

    ask(Server(("succeeded", msgpack.encode(1))), test)


def in_file(directory: Path, content: bytes) -> tuple[str, list[Any]]:
    """An end whose result is in a file."""
    path = directory / "results" / ID
    path.parent.mkdir()
    packed = msgpack.encode(content)
    path.write_bytes(packed)
    return "succeeded", [bytes(path), len(packed)]


def test_a_result_is_taken_by_a_complete_answer_alone(tmp_path: Path) -> None:
    """Who has seen its length, or a part of it, comes for the rest."""
    server = Server(in_file(tmp_path, b"x" * UNREAD_BYTES))
    path = f"/v1/requests/{ID}/result"
    accept = "Accept: application/octet-stream"

    async def test(served: Served) -> None:
        told, body = await answer_of(served, "HEAD", path, accept)
        assert b"content-length: %d" % UNREAD_BYTES in told
        assert body == b""
        told, body = await answer_of(served, "GET", path, accept, "Range: bytes=5-400004")
        assert (told[:13], len(body)) == (b"HTTP/1.1 206 ", 400_000)
        told, body = await answer_of(served, "GET", path, "Accept: image/png")
        assert told.startswith(b"HTTP/1.1 406 ")
        reader, writer = await served.connect()
        writer.write(head("GET", path, "Host: x", accept))
        await reader.readexactly(1000)
        writer.transport.abort()
        await until(lambda: not served.state.tasks)
        assert server.told == []
        told, body = await answer_of(served, "GET", path, accept)
        assert len(body) == UNREAD_BYTES
        assert server.told == [ID]

    ask(server, test)


def test_a_reader_of_events_that_leaves_at_once_ends_its_stream() -> None:
    """The server is told that nobody reads, and no fault is logged."""
    server = Server()

    async def test(served: Served) -> None:
        _, writer = await served.connect()
        writer.write(head("GET", "/v1/events", "Host: x"))
        await until(lambda: server.streams)
        writer.transport.abort()
        await until(lambda: not server.streams)

    ask(server, test)
