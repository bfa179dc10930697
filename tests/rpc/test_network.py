"""Calls over TCP and TLS, as over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from forebay import rpc
from forebay._core import Connection
from forebay.errors import BrokenError, ClosedError, DeadlineError, RemoteError

from .conftest import Run, descriptors
from .handlers import Handler, Place, place, until

__all__ = ["place"]


def test_all_kinds_of_calls_are_answered(run: Run, place: Place) -> None:
    """One handler serves awaited, blocking, submitted and one-way calls."""
    handler = Handler()

    def caller(url: str) -> None:
        with place.connect(url) as channel:
            assert [channel.call("later", (at,)) for at in range(20)] == list(range(20))
            futures = [channel.submit("later", (at,)) for at in range(200)]
            assert [future.result(20) for future in futures] == list(range(200))
            channel.send_oneway("note", ("seen",))
            with pytest.raises(KeyError) as caught:
                channel.call("fail")
            assert isinstance(caught.value, RemoteError)

    async def work() -> None:
        async with place.serve(handler) as server:
            assert server.url.startswith(f"{place.scheme}://")
            await asyncio.to_thread(caller, server.url)
            channel = await place.connect(server.url)
            assert await channel.call("echo", ([1, "two", None],)) == [1, "two", None]
            answers = await asyncio.gather(*(channel.call("later", (at,)) for at in range(300)))
            assert answers == list(range(300))
            assert 0 < await channel.call("remaining", timeout=9) <= 9.001
            await channel.aclose()

    run(work())
    assert handler.seen == ["seen"]


@pytest.mark.parametrize("size", [1_000, 100_000, 1_500_000])
def test_arrays_of_any_size_go_both_ways(run: Run, place: Place, size: int) -> None:
    """Frames that the kernel takes in parts, and TLS in records, arrive whole."""
    array = np.arange(size, dtype=float)

    def caller(url: str) -> None:
        with place.connect(url) as channel:
            for _ in range(2):
                assert np.array_equal(channel.call("echo", (array,)), array)
            assert np.array_equal(channel.submit("echo", (array,)).result(20), array)

    async def work() -> None:
        async with place.serve(Handler()) as server:
            channel = await place.connect(server.url)
            calls = [channel.call("echo", (array + at,)) for at in range(3)]
            for at, answer in enumerate(await asyncio.gather(*calls)):
                assert np.array_equal(answer, array + at)
            await channel.aclose()
            await asyncio.to_thread(caller, server.url)

    run(work())


def test_cancelling_and_leaving_cancel_the_work(run: Run, place: Place) -> None:
    """Work that nobody waits for ends: by a cancel, and by the caller's leaving."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            task = asyncio.create_task(channel.call("wait"))
            await until(lambda: handler.seen)
            task.cancel()
            await until(lambda: handler.cancelled == 1)
            assert await channel.call("echo", (2,)) == 2
            left = asyncio.create_task(channel.call("wait"))
            await until(lambda: len(handler.seen) == 2)
            await channel.aclose()
            with pytest.raises(ClosedError):
                await left
            await until(lambda: handler.cancelled == 2)
            await until(lambda: server.connections == 0)

    run(work())


def test_deadlines_travel_and_keep_the_channel(run: Run, place: Place) -> None:
    """A caller that ran out of time may go on; the server learns of it."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            with pytest.raises(DeadlineError):
                await channel.call("wait", timeout=0.1)
            await until(lambda: handler.cancelled == 1)
            assert await channel.call("echo", (1,)) == 1
            await channel.aclose()

    run(work())


def is_stuck(end: Connection) -> bool:
    """Whether an end neither takes anything in nor gets rid of what it has to send."""
    if not end.outbox_bytes or end.wants()[0]:
        return False
    _, writable, _ = select.select([], [end.fileno()], [], 0)
    return not writable


def test_a_caller_that_takes_no_answers_is_waited_for(run: Run, place: Place) -> None:
    """Answers that nobody takes stop both ends from taking more in, rather than fill memory."""
    array = np.zeros(1 << 13)  # 64 KiB, which is never lent
    bound, many = 24 << 20, 3200

    async def work() -> None:
        async with place.serve(Handler()) as server:
            channel = await place.connect(server.url)
            calling, sent = channel.channel, 0
            connection = calling._connection
            head, segments = calling._encode_call("echo", (array,), None)

            def send() -> None:
                nonlocal sent
                with contextlib.suppress(ClosedError):
                    while sent < many:
                        sent += 1
                        connection.start(calling._number, head, segments, None, 0)
                        connection.drain()

            sending = asyncio.create_task(asyncio.to_thread(send))
            await until(lambda: server._sessions)
            (session,) = server._sessions
            ends = (session._connection, connection)
            await until(lambda: sending.done() or all(map(is_stuck, ends)))
            assert 0 < sent < many
            for end in ends:
                counters = end.counters()
                assert counters["outbox_bytes"] + counters["inbox_bytes"] < bound
            await channel.aclose()
            await sending

    run(work())


def test_streams_go_over_a_network(run: Run, place: Place) -> None:
    """Items arrive in order, many at once and one by one, and leaving early ends the work."""
    handler = Handler()

    def caller(url: str) -> None:
        with place.connect(url) as channel:
            assert list(channel.stream("count", (500,))) == list(range(500))
            with channel.stream("count", (10**9,)) as items:
                assert [next(items) for _ in range(3)] == [0, 1, 2]
            assert channel.call("echo", (1,)) == 1

    async def work() -> None:
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            assert [item async for item in channel.stream("count", (500,))] == list(range(500))
            async with channel.stream("count", (10**9,)) as items:
                assert await anext(items) == 0
            await until(lambda: len(handler.seen) == 2)
            await asyncio.to_thread(caller, server.url)
            await until(lambda: handler.seen == ["left"] * 4)
            await channel.aclose()

    run(work())


def test_threads_share_one_connection(run: Run, place: Place) -> None:
    """Many blocked threads get their own answers, whoever of them reads."""

    def caller(channel: rpc.Channel, at: int) -> list[object]:
        return [channel.call("later", ([at, turn],), timeout=20) for turn in range(50)]

    def callers(url: str) -> None:
        with place.connect(url) as channel, ThreadPoolExecutor(8) as threads:
            for at, answers in enumerate(threads.map(lambda at: caller(channel, at), range(8))):
                assert answers == [[at, turn] for turn in range(50)]

    async def work() -> None:
        async with place.serve(Handler()) as server:
            await asyncio.to_thread(callers, server.url)

    run(work())


def test_leaving_the_server_ends_everything(run: Run, place: Place) -> None:
    """Callers are told in an orderly way, and no descriptor is left."""

    async def work() -> None:
        await asyncio.get_running_loop().getaddrinfo("localhost", 0)
        before = descriptors()
        handler = Handler()
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            task = asyncio.create_task(channel.call("wait"))
            await until(lambda: handler.seen)
        with pytest.raises(BrokenError) as caught:
            await task
        assert "close_notify" not in str(caught.value)
        await channel.aclose()
        assert descriptors() <= before

    run(work())


async def failure(place: Place, **options: object) -> RemoteError:
    """What a caller gets of an exception of a method."""
    async with place.serve(Handler(), **options) as server:
        channel = await place.connect(server.url)
        with pytest.raises(KeyError) as caught:
            await channel.call("fail")
        await channel.aclose()
    assert isinstance(caught.value, RemoteError)
    return caught.value


def test_a_caller_over_a_network_learns_no_paths_of_the_server(run: Run, place: Place) -> None:
    """Type and message reach everybody, files and lines only processes of the same user."""

    async def work() -> None:
        error = await failure(place)
        assert str(error) == "'lost'"
        assert error.type_name == "KeyError"
        assert ("handlers.py" in error.traceback_text) == (place.scheme == "unix")
        assert bool(getattr(error, "__notes__", [])) == (place.scheme == "unix")

    run(work())


def test_a_server_sends_tracebacks_where_it_is_asked_to(run: Run, place: Place) -> None:
    """Among machines of one owner a traceback is worth more than what it tells."""

    async def work() -> None:
        error = await failure(place, tracebacks=True)
        assert "in fail" in error.traceback_text

    run(work())


@contextlib.asynccontextmanager
async def resetting(url: str, at: int) -> AsyncIterator[str]:
    """A TCP address before a server, which resets after so many bytes of the server's."""
    host, port = url.rpartition("//")[2].rsplit(":", 1)
    links: list[asyncio.Task[None]] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, calls = await asyncio.open_connection(host, int(port))
        links.append(asyncio.create_task(pump(reader, calls)))
        left = at
        while left and (part := await answers.read(left)):
            writer.write(part)
            await writer.drain()
            left -= len(part)
        end = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        calls.close()

    async def pump(reader: asyncio.StreamReader, calls: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(1 << 16):
                calls.write(part)

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as listening:
        near = listening.sockets[0].getsockname()[1]
        yield f"tcp://127.0.0.1:{near}"
    await asyncio.gather(*links)


def test_a_reset_at_each_byte_of_an_answer_is_told_and_never_a_wrong_one(run: Run) -> None:
    """Whatever of an answer comes before the network fails, its call may have run, and says so."""

    async def answered(url: str, at: int) -> str:
        async with resetting(url, at) as near:
            try:
                channel = await rpc.connect(near, token="secret", timeout=20)
            except BrokenError as error:
                return error.delivered
            async with channel:
                try:
                    return str(await channel.call("echo", ("whole",)))
                except BrokenError as error:
                    return error.delivered

    async def work() -> None:
        async with rpc.serve(Handler(), "tcp://127.0.0.1:0", token="secret") as server:
            outcomes: list[str] = []
            while "whole" not in outcomes:
                outcomes.append(await answered(server.url, len(outcomes)))
                assert len(outcomes) < 100
        # The server says who it is by 32 bytes; a header of 28 and the answer come after them.
        assert outcomes[:32] == ["no"] * 32
        assert set(outcomes[33:-1]) == {"maybe"}

    run(work())
