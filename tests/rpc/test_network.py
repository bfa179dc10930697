"""Calls over TCP and TLS, as over a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import select
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
            channel = await place.aconnect(server.url)
            assert await channel.acall("echo", ([1, "two", None],)) == [1, "two", None]
            answers = await asyncio.gather(*(channel.acall("later", (at,)) for at in range(300)))
            assert answers == list(range(300))
            assert 0 < await channel.acall("remaining", timeout=9) <= 9.001
            channel.close()

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
            channel = await place.aconnect(server.url)
            calls = [channel.acall("echo", (array + at,)) for at in range(3)]
            for at, answer in enumerate(await asyncio.gather(*calls)):
                assert np.array_equal(answer, array + at)
            channel.close()
            await asyncio.to_thread(caller, server.url)

    run(work())


def test_cancelling_and_leaving_cancel_the_work(run: Run, place: Place) -> None:
    """Work that nobody waits for ends: by a cancel, and by the caller's leaving."""
    handler = Handler()

    async def work() -> None:
        async with place.serve(handler) as server:
            channel = await place.aconnect(server.url)
            task = asyncio.create_task(channel.acall("wait"))
            await until(lambda: handler.seen)
            task.cancel()
            await until(lambda: handler.cancelled == 1)
            assert await channel.acall("echo", (2,)) == 2
            left = asyncio.create_task(channel.acall("wait"))
            await until(lambda: len(handler.seen) == 2)
            channel.close()
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
            channel = await place.aconnect(server.url)
            with pytest.raises(DeadlineError):
                await channel.acall("wait", timeout=0.1)
            await until(lambda: handler.cancelled == 1)
            assert await channel.acall("echo", (1,)) == 1
            channel.close()

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
            channel = await place.aconnect(server.url)
            connection, sent = channel._connection, 0
            head, segments = channel._encode_call("echo", (array,), None)

            def send() -> None:
                nonlocal sent
                with contextlib.suppress(ClosedError):
                    while sent < many:
                        sent += 1
                        connection.start(channel._number, head, segments, None, 0)
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
            channel.close()
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
            channel = await place.aconnect(server.url)
            assert [item async for item in channel.astream("count", (500,))] == list(range(500))
            async with channel.astream("count", (10**9,)) as items:
                assert await anext(items) == 0
            await until(lambda: len(handler.seen) == 2)
            await asyncio.to_thread(caller, server.url)
            await until(lambda: handler.seen == ["left"] * 4)
            channel.close()

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
            channel = await place.aconnect(server.url)
            task = asyncio.create_task(channel.acall("wait"))
            await until(lambda: handler.seen)
        with pytest.raises(BrokenError) as caught:
            await task
        assert "close_notify" not in str(caught.value)
        channel.close()
        assert descriptors() <= before

    run(work())
