"""Answers and refusals on real connections: each reaches its own request, and none is cut short."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.gateway.http import limits
from forebay.gateway.http.exchange import Exchange, GoneError
from tests.gateway.http.connection_serving import (
    GET,
    LAST_GET,
    UNREAD_BYTES,
    Served,
    answer,
    piece,
    serve,
    until,
)

START = {"type": "http.response.start", "status": 200, "headers": []}
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


BROKEN_BODY = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n"


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize(
    "following",
    [b"no request\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"\x16\x03\x01", BROKEN_BODY],
)
def test_a_refusal_waits_for_the_answers_to_the_requests_before(
    before: int, following: bytes
) -> None:
    """They were accepted: each is answered whole, then the broken one, and then nothing is."""
    come, go = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(piece(b"half"))
        come.set()
        await go.wait()
        await send(piece(b" and half", more=False))

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(GET * before + following)
        await come.wait()
        await asyncio.sleep(0.05)
        writer.write(GET * 1000)  # not looked at: what it belongs to is not known
        go.set()
        told = await reader.read()
        statuses = [int(one[:3]) for one in told.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [200] * before + [400]
        whole = b"4\r\nhalf\r\n9\r\n and half\r\n0\r\n\r\n"
        assert told.count(whole) == before
        writer.close()

    serve(application, test)


def test_headers_that_do_not_end_wait_for_the_answer_to_the_request_before() -> None:
    """The 408 of a request that has only begun too."""
    come, go = asyncio.Event(), asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        come.set()
        await go.wait()
        await answer(send)

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(GET + b"GET / HTTP/1.1\r\n")
        await come.wait()
        served.look(limits.HEADERS_S + 1)
        served.look(limits.HEADERS_S + limits.LINGER_S + 2)
        go.set()
        told = await reader.read()
        assert [int(one[:3]) for one in told.split(b"HTTP/1.1 ")[1:]] == [200, 408]
        writer.close()

    serve(application, test)


def test_a_client_that_leaves_behind_a_broken_request_is_noticed() -> None:
    """The request before is told, as it is of any other client that leaves."""
    come = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        come.set()
        while (await receive())["type"] != "http.disconnect":
            pass

    async def test(served: Served) -> None:
        _, writer = await served.connect()
        writer.write(GET + b"no request\r\n\r\n")
        await come.wait()
        writer.close()
        await served.all_gone()

    serve(application, test)


def test_a_broken_body_whose_answer_has_begun_ends_its_connection() -> None:
    """A refusal would be read as a piece of that answer."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(piece(b"half"))
        while (await receive())["type"] != "http.disconnect":
            pass

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        await reader.readuntil(b"half\r\n")
        writer.write(b"zz\r\n")
        assert await reader.read() == b""
        writer.close()

    serve(application, test)


def test_a_refusal_of_the_body_is_the_answer_to_its_request() -> None:
    """Where nothing was answered yet and nothing else is due, the client is told."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        await asyncio.sleep(0.02)
        writer.write(b"zz\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()

    serve(application, test)


def test_nothing_is_written_behind_the_end_of_an_answer() -> None:
    """A sign of life that waited for a slow client would be read as the next answer."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/stream":
            await answer(send)
            return
        await send(START)
        await send(piece(b"x" * UNREAD_BYTES))
        async with asyncio.TaskGroup() as group:
            group.create_task(send(piece(b"", more=False)))
            await asyncio.sleep(0)
            group.create_task(send(piece(b":\n\n")))

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(GET.replace(b"/ ", b"/stream "))
        await asyncio.sleep(0.05)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(b"%x\r\n\r\n" % UNREAD_BYTES) + UNREAD_BYTES)
        assert await reader.readexactly(5) == b"0\r\n\r\n"
        writer.write(LAST_GET)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serve(application, test)


def test_fields_behind_a_body_are_no_headers() -> None:
    """A proxy that looked at the headers has not seen them."""
    heard: list[dict[bytes, bytes]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        heard.append(dict(scope["headers"]))
        await answer(send)

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(
            POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"
            b"Authorization: x\r\nCookie: y\r\n\r\n" + LAST_GET
        )
        assert (await reader.read()).count(b"HTTP/1.1 200 ") == 2
        writer.close()

    serve(application, test)
    assert [sorted(one) for one in heard] == [
        [b"host", b"transfer-encoding"],
        [b"connection", b"host"],
    ]


def test_many_fields_behind_a_body_are_refused() -> None:
    """They count like headers."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        field = b"A: %b\r\n" % (b"x" * 1000)
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + field * 70)
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        writer.close()

    serve(application, test)


@pytest.mark.parametrize("began", [b"0\r\nA: ", b"0\r\nA", b"1;a="])
@pytest.mark.parametrize("piece_bytes", [1000, 60_000])
def test_a_line_behind_a_chunk_that_does_not_end_is_refused(began: bytes, piece_bytes: int) -> None:
    """The parser keeps a field until it is whole, and renews nobody's deadline by it."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n" + began)
        for _ in range(180_000 // piece_bytes):
            writer.write(b"x" * piece_bytes)
            await asyncio.sleep(0)
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        writer.close()

    serve(application, test)


@pytest.mark.parametrize("size", [1, 16, 4096])
def test_the_sizes_of_chunks_are_no_fields(size: int) -> None:
    """A body in chunks of a byte has more of them than headers may have bytes."""
    heard: list[int] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        count, more = 0, True
        while more:
            message = await receive()
            count, more = count + len(message["body"]), message["more_body"]
        heard.append(count)
        await answer(send)

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
        count = 200_000 // len(chunk)
        writer.write(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * count + b"0\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        assert heard == [count * size]
        writer.close()

    serve(application, test)


@pytest.mark.parametrize("piece_bytes", [500, 1000, 5000])
def test_headers_below_the_limit_are_taken_in_pieces_of_any_size(piece_bytes: int) -> None:
    """A field counts once, however often the connection was read meanwhile."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await answer(send)

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        field = b"A: %b\r\n" % (b"x" * 1500)
        sent = LAST_GET.replace(b"\r\n\r\n", b"\r\n" + field * 40 + b"\r\n")
        for start in range(0, len(sent), piece_bytes):
            writer.write(sent[start : start + piece_bytes])
            await asyncio.sleep(0.001)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serve(application, test)


@pytest.mark.parametrize("coding", ["length", "chunks"])
def test_a_body_that_nobody_asks_for_waits_in_the_kernel(coding: str) -> None:
    """It comes in pieces that a handler has asked for, and is no copy of all that has come."""
    size, go = 16 << 20, asyncio.Event()
    pieces: list[int] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        more = True
        while more:
            message = await receive()
            pieces.append(len(message["body"]))
            more = message["more_body"]
        await answer(send)

    async def test(served: Served) -> None:
        served.state.census.max_body_bytes = 2 * size
        reader, writer = await served.connect()
        head = b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size
        body = b"x" * size
        if coding == "chunks":
            head = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            body = b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16)) * (size >> 16) + b"0\r\n\r\n"
        writer.write(POST + head + body)
        await asyncio.sleep(0.3)
        assert served.state.census.body_bytes < 1 << 20
        go.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serve(application, test)
    assert sum(pieces) == size
    assert max(pieces) < 1 << 20


def test_a_body_that_nobody_wanted_is_read_to_its_end() -> None:
    """The next request is behind it."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await answer(send)

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        body = b"x" * 900_000
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body + LAST_GET)
        assert (await reader.read()).count(b"HTTP/1.1 200 ") == 2
        writer.close()

    serve(application, test)


def test_a_body_is_not_asked_for_within_an_answer() -> None:
    """`100 Continue` would be a part of a stream that has begun."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(piece(b"one"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.02)  # whether the client has left
        await send(piece(b"two", more=False))

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        got = await reader.read()
        assert got.endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
        assert b"100 Continue" not in got
        writer.close()

    serve(application, test)


def test_nothing_more_is_made_for_a_client_that_has_left() -> None:
    """A result of gigabytes is not read to its end for nobody."""
    ended: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        await exchange.begin(200, [])
        try:
            for _ in range(100_000):
                await exchange.piece(b"x" * 65536)
        except GoneError:
            ended.append("gone")

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(GET)
        await reader.readexactly(100_000)
        writer.transport.abort()
        await until(lambda: ended)

    serve(application, test)
    assert ended == ["gone"]


def test_our_own_pause_is_not_the_silence_of_the_client() -> None:
    """What a client sends behind a request that waits is not read, so it cannot be late."""
    go, bodies = asyncio.Event(), []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        bodies.append(body)
        if scope["method"] == "GET":
            await go.wait()
        await answer(send)

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(GET)
        await until(lambda: bodies)
        writer.write(POST + b"Connection: close\r\nContent-Length: 2\r\n\r\n")
        [connection] = served.state.connections
        await until(lambda: connection.flow.read_paused)
        served.look(limits.BODY_S + 1)
        writer.write(b"ab")
        await asyncio.sleep(0.02)
        go.set()
        assert (await reader.read()).count(b"HTTP/1.1 200 ") == 2
        writer.close()

    serve(application, test)
    assert bodies == [b"", b"ab"]


def test_a_cut_answer_that_nobody_reads_is_given_up() -> None:
    """A stream whose token is gone holds no connection of a client that has stopped reading."""
    transports: list[asyncio.Transport] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        """Send little more than the kernel takes, so that the gateway need not wait to write."""
        await send(START)
        waits = 0
        while waits < 2:
            await send(piece(b"x" * 16384))
            if transports[0].get_write_buffer_size():
                await asyncio.sleep(0.05)
                waits += bool(transports[0].get_write_buffer_size())

    async def test(served: Served) -> None:
        _, writer = await served.connect()
        await until(lambda: served.state.connections)
        transports.extend(one.transport for one in served.state.connections)
        writer.write(GET)
        await until(lambda: served.state.tasks)
        await until(lambda: not served.state.tasks)
        assert len(served.state.connections) == 1
        served.look(limits.UNREAD_S + 1)
        served.look(2 * limits.UNREAD_S + 2)
        await served.all_gone()
        writer.transport.abort()

    serve(application, test)


def test_a_whole_answer_that_nobody_reads_waits_in_its_handler() -> None:
    """Else it is a copy in the connection's memory, whose limit counts pieces alone."""
    sent = asyncio.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await Exchange(scope, receive, send).answer(200, b"x" * UNREAD_BYTES)
        sent.set()

    async def test(served: Served) -> None:
        reader, writer = await served.connect()
        writer.write(LAST_GET)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.1)
        (connection,) = served.state.connections
        assert connection.transport.get_write_buffer_size() <= 2 * limits.UNREAD_BYTES
        assert not sent.is_set()
        assert await reader.read() == b"x" * UNREAD_BYTES
        assert sent.is_set()
        writer.close()

    serve(application, test)
