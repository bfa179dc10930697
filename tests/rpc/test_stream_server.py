"""Streams that a server on an event loop yields, to tasks and to threads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forebay import rpc
from forebay.errors import BrokenError, DeadlineError, RemoteError

from .conftest import Run
from .handlers import Place, place, until

__all__ = ["place"]


class Handler:
    """Streams of both kinds."""

    def __init__(self) -> None:
        self.made = 0
        self.log: list[str] = []

    def echo(self, value: Any) -> Any:
        return value

    def plain(self, stop: int | None = None) -> Iterator[int]:
        try:
            for number in itertools.count() if stop is None else range(stop):
                self.made += 1
                yield number
        finally:
            self.log.append("plain closed")

    async def awaited(self, stop: int | None = None, pause: int = 0) -> AsyncIterator[int]:
        try:
            for number in itertools.count() if stop is None else range(stop):
                for _ in range(pause):
                    await asyncio.sleep(0)
                self.made += 1
                yield number
        finally:
            await asyncio.sleep(0)
            self.log.append("awaited closed")

    async def hang(self) -> AsyncIterator[int]:
        yield 0
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.log.append("hang closed")
        yield 1

    async def fail(self) -> AsyncIterator[int]:
        yield 1
        raise KeyError("lost")

    async def given(self, stop: int) -> AsyncIterator[int]:
        return self.awaited(stop)

    async def blocks(self, count: int, size: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            self.made += 1
            yield bytes(size)

    async def whole(self) -> int:
        return 5

    async def remaining(self) -> AsyncIterator[float | None]:
        while True:
            yield rpc.current().remaining


def serving(run: Run, place: Place, work: Any) -> None:
    """Run `work(handler, channel)` against a server in the same loop."""

    async def served() -> None:
        handler = Handler()
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            try:
                await work(handler, channel)
            finally:
                await channel.aclose()

    run(served())


@pytest.mark.parametrize("method", ["plain", "awaited", "given"])
@pytest.mark.parametrize("credit", [1, 16, 1000])
def test_generators_of_both_kinds_are_streams(
    run: Run, place: Place, method: str, credit: int
) -> None:
    """One handler serves plain and async generators."""

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        stream = channel.stream(method, (300,), credit=credit)
        assert [item async for item in stream] == list(range(300))

    serving(run, place, work)


@pytest.mark.parametrize("method", ["plain", "awaited"])
def test_the_generator_waits_for_its_consumer_and_others_go_on(
    run: Run, place: Place, method: str
) -> None:
    """A slow consumer holds its own stream only."""

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        async with channel.stream(method, credit=10) as stream:
            assert await anext(stream) == 0
            for number in range(50):
                assert await channel.call("echo", (number,)) == number
            assert handler.made <= 11
            assert [await anext(stream) for _ in range(30)] == list(range(1, 31))
            assert handler.made <= 31 + 10
        await until(lambda: handler.log == [f"{method} closed"])

    serving(run, place, work)


def test_streams_of_many_tasks_interleave(run: Run, place: Place) -> None:
    """Many streams of one connection are served side by side."""

    async def read(channel: rpc.AsyncChannel, method: str, size: int) -> None:
        stream = channel.stream(method, (size,), credit=3)
        assert [item async for item in stream] == list(range(size))

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(read(channel, ("plain", "awaited")[number % 2], number))

    serving(run, place, work)


def test_leaving_cancels_a_generator_that_awaits(run: Run, place: Place) -> None:
    """Its `finally` runs though it never yields again."""

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        async with channel.stream("hang") as stream:
            assert await anext(stream) == 0
        await until(lambda: handler.log == ["hang closed"])
        assert await channel.call("echo", (1,)) == 1

    serving(run, place, work)


def test_the_server_ends_a_stream_at_its_deadline(run: Run, place: Place) -> None:
    """A generator that awaits for ever is closed in time, and its caller told."""

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        stream = channel.stream("hang", timeout=0.1)
        assert await anext(stream) == 0
        with pytest.raises(DeadlineError):
            await anext(stream)
        await until(lambda: handler.log == ["hang closed"])
        timed = channel.stream("remaining", timeout=50.0)
        assert 0 < await anext(timed) <= 50.001
        await timed.aclose()

    serving(run, place, work)


def test_exceptions_and_wrong_methods(run: Run, place: Place) -> None:
    """Items before an exception arrive; what is no stream says so."""

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        stream = channel.stream("fail")
        assert await anext(stream) == 1
        with pytest.raises(KeyError) as caught:
            await anext(stream)
        assert isinstance(caught.value, RemoteError)
        with pytest.raises(TypeError, match="no iterator"):
            await anext(channel.stream("whole"))
        with pytest.raises(TypeError, match="by stream"):
            await channel.call("plain")
        with pytest.raises(TypeError, match="by stream"):
            await channel.call("awaited")

    serving(run, place, work)


def test_large_items_are_held_at_the_server(run: Run, place: Place) -> None:
    """Neither the outbox nor the inbox takes more than a few items of a stream."""

    async def work(handler: Handler, channel: rpc.AsyncChannel) -> None:
        async with channel.stream("blocks", (200, 500_000), credit=1000) as stream:
            for number in range(200):
                assert len(await anext(stream)) == 500_000
                assert handler.made <= number + 1 + 12

    serving(run, place, work)


def test_a_caller_that_vanishes_closes_its_generators(run: Run, place: Place) -> None:
    """A connection that ends leaves no task behind."""

    async def work() -> None:
        handler = Handler()
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            kept = [channel.stream(method) for method in ("plain", "awaited", "hang")]
            for stream in kept:
                assert await anext(stream) == 0
            await channel.aclose()
            await until(lambda: len(handler.log) == 3)

    run(work())


def test_a_server_that_closes_ends_its_streams(run: Run, place: Place) -> None:
    """The caller is told, and the generator's `finally` runs."""

    async def work() -> None:
        handler = Handler()
        async with place.serve(handler) as server:
            channel = await place.connect(server.url)
            stream = channel.stream("awaited", credit=2)
            assert await anext(stream) == 0
        assert handler.log == ["awaited closed"]
        with pytest.raises(BrokenError):
            async for _ in stream:
                pass
        await channel.aclose()

    run(work())


def test_a_thread_reads_from_a_server_on_a_loop(run: Run, place: Place) -> None:
    """Both faces meet both servers."""

    def read(url: str) -> None:
        with place.connect(url) as channel:
            for method in ("plain", "awaited"):
                assert list(channel.stream(method, (2000,))) == list(range(2000))
            with channel.stream("awaited", (50, 3), credit=4) as stream:
                assert next(stream) == 0
                assert channel.call("echo", (1,)) == 1
                assert list(stream) == list(range(1, 50))

    async def work() -> None:
        async with place.serve(Handler()) as server:
            await asyncio.to_thread(read, server.url)

    run(work())
