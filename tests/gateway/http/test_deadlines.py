"""The deadlines of a connection, without waiting for them: each phase, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from uvicorn.config import Config

from forebay.gateway.http import limits
from forebay.gateway.http.census import Census
from forebay.gateway.http.protocol import Protocol
from forebay.gateway.http.state import State

HEAD = b"POST /v1/batch HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


class Transport:
    """A socket whose peer reads as much as the test says."""

    def __init__(self) -> None:
        self.written = b""
        self.unread = 0
        self.ended = ""
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 5) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == limits.UNREAD_BYTES

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.ended = "eof"

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def is_closing(self) -> bool:
        return self.ended in ("closed", "aborted")

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Connection:
    """A protocol, its transport, and a clock that a test sets."""

    def __init__(self, census: Census) -> None:
        self.bodies: list[bytes] = []
        self.gone = False
        self.answers = asyncio.Event()
        self.answers.set()
        config = Config(
            self._application, http=Protocol, ws="none", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, proxy_headers=False,
        )  # fmt: skip
        config.load()
        self.transport = Transport()
        self.state = State(census)
        self.protocol = Protocol(config, self.state)
        transport: Any = self.transport
        self.protocol.connection_made(transport)

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone = True
                return
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await self.answers.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        await send({"type": "http.response.body", "body": b"ok"})

    def after(self, seconds: float) -> str:
        """Look so many seconds from now; how the connection ended."""
        self.state.look(asyncio.get_running_loop().time() + seconds)
        return self.transport.ended


LENGTH = (b"content-length", b"2")


def run(test: Callable[[Connection], Coroutine[Any, Any, None]], **limits_: int) -> None:
    """Run a test with a connection."""

    async def inside() -> None:
        given = {"max_connections": 9, "max_per_address": 9, "max_body_bytes": 100, **limits_}
        connection = Connection(Census(**given))
        await test(connection)
        connection.protocol.connection_lost(None)
        assert connection.protocol._census.total == 0
        assert connection.protocol._census.body_bytes == 0

    asyncio.run(inside())


async def settle() -> None:
    """Let the tasks of requests run."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_silent_connection_is_closed_without_a_word() -> None:
    """A browser that connects ahead gets no answer to a request that it did not make."""

    async def test(one: Connection) -> None:
        assert one.after(limits.HEADERS_S - 1) == ""
        assert one.after(limits.HEADERS_S + 1) == "closed"
        assert one.transport.written == b""

    run(test)


def test_headers_that_do_not_end_are_answered_408() -> None:
    """Bytes that come now and then do not renew the deadline."""

    async def test(one: Connection) -> None:
        one.protocol.data_received(b"GET / HTTP/1.1\r\n")
        assert one.after(limits.HEADERS_S - 1) == ""
        one.protocol.data_received(b"A: b\r\n")
        assert one.after(limits.HEADERS_S + 1) == "eof"
        assert one.transport.written.startswith(b"HTTP/1.1 408 ")
        assert one.after(limits.HEADERS_S + limits.LINGER_S + 2) == "aborted"

    run(test)


def test_a_body_that_does_not_end_is_answered_408() -> None:
    """Its handler is told that the client has left."""

    async def test(one: Connection) -> None:
        one.protocol.data_received(HEAD + b"ab")
        await settle()
        assert one.after(limits.BODY_S - 1) == ""
        assert one.after(limits.BODY_S + 1) == "eof"
        await settle()
        assert one.transport.written.startswith(b"HTTP/1.1 408 ")
        assert one.gone

    run(test)


def test_an_idle_connection_is_closed() -> None:
    """A client that has its answer may keep the connection for a while."""

    async def test(one: Connection) -> None:
        one.protocol.data_received(HEAD + b"abcd")
        await settle()
        assert one.bodies == [b"abcd"]
        assert one.after(limits.IDLE_S - 1) == ""
        assert one.after(limits.IDLE_S + 1) == "closed"

    run(test)


def test_a_client_that_reads_slowly_has_time_and_one_that_does_not_read_has_none() -> None:
    """Each half minute in which it reads something gives it another one."""

    async def test(one: Connection) -> None:
        one.answers.clear()
        one.protocol.data_received(HEAD + b"abcd")
        await settle()
        one.transport.unread = 1000
        one.protocol.pause_writing()
        one.transport.unread = 999
        assert one.after(limits.UNREAD_S + 1) == ""
        assert one.after(2 * limits.UNREAD_S + 2) == "aborted"
        one.answers.set()
        await settle()

    run(test)


def test_a_closed_connection_whose_client_does_not_read_is_aborted() -> None:
    """It would stay for ever otherwise: its last answer waits to be read."""

    async def test(one: Connection) -> None:
        one.transport.unread = 1000
        one.protocol.data_received(HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\nabcd"))
        await settle()
        assert one.transport.ended == "closed"
        one.protocol.resume_writing()
        assert one.after(limits.UNREAD_S - 1) == "closed"
        assert one.after(limits.UNREAD_S + 1) == "aborted"

    run(test)


def test_bodies_of_all_connections_are_bounded() -> None:
    """Many clients that each send half of a body do not fill the memory."""

    async def test(one: Connection) -> None:
        one.protocol._census.body_bytes += 400
        one.protocol.data_received(HEAD + b"ab")
        await settle()
        assert one.transport.written.startswith(b"HTTP/1.1 503 ")
        one.protocol._census.body_bytes -= 400

    run(test)


@pytest.mark.parametrize("limit", ["max_connections", "max_per_address"])
def test_a_connection_too_many_is_told_so(limit: str) -> None:
    """A client that may come again later knows it."""

    async def test(one: Connection) -> None:
        second = Connection(one.protocol._census)
        assert second.transport.written.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in second.transport.written
        second.protocol.data_received(HEAD + b"abcd")
        await settle()
        assert second.bodies == []
        second.protocol.connection_lost(None)

    run(test, **{limit: 1})


def test_requests_in_one_piece_are_answered_one_after_the_other() -> None:
    """However the bytes are cut."""

    async def test(one: Connection) -> None:
        wanted = [b"%4d" % number for number in range(100)]
        sent = b"".join(HEAD + body for body in wanted)
        for start in range(0, len(sent), 333):
            one.protocol.data_received(sent[start : start + 333])
            await settle()
        for _ in range(100):
            await settle()
        assert one.bodies == wanted
        assert one.transport.written.count(b"HTTP/1.1 200 ") == 100
        assert one.transport.reading

    run(test)
