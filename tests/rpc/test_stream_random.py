"""Random use of streams: many at once, left and cancelled anywhere, beside calls."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from forebay.rpc import AsyncChannel, Channel

from .conftest import Run
from .handlers import Place, place, until

__all__ = ["place"]

SECONDS = 1.5


class Handler:
    """Counts what it opens and closes."""

    def __init__(self) -> None:
        self.opened = self.closed = 0

    def echo(self, value: Any) -> Any:
        return value

    def plain(self, stop: int | None, size: int) -> Iterator[Any]:
        self.opened += 1
        try:
            for number in itertools.count() if stop is None else range(stop):
                yield number, bytes(size)
        finally:
            self.closed += 1

    async def awaited(self, stop: int | None, size: int) -> AsyncIterator[Any]:
        self.opened += 1
        try:
            for number in itertools.count() if stop is None else range(stop):
                if number % 7 == 0:
                    await asyncio.sleep(0)
                yield number, bytes(size)
        finally:
            self.closed += 1


async def use(channel: AsyncChannel, chance: random.Random) -> None:
    """Read some of a stream, call meanwhile, and leave it in one of the ways."""
    size = chance.choice([0, 0, 10, 70_000, 300_000])
    stream = channel.stream(
        chance.choice(["plain", "awaited"]),
        (chance.choice([None, 3, 50]), size),
        credit=chance.choice([1, 2, 16, 500]),
    )
    expected = 0
    async for number, block in stream:
        assert number == expected
        assert len(block) == size
        expected += 1
        if chance.random() < 0.05:
            assert await channel.call("echo", (expected,)) == expected
        if chance.random() < 0.05:
            break
    if chance.random() < 0.5:
        await stream.aclose()


def test_every_generator_that_was_opened_is_closed(run: Run, place: Place) -> None:
    """Whatever its consumers do, a server keeps no stream that nobody reads."""

    async def user(channels: list[AsyncChannel], seed: int) -> None:
        chance = random.Random(seed)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            task = asyncio.create_task(use(chance.choice(channels), chance))
            if chance.random() < 0.3:
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def work() -> None:
        handler = Handler()
        async with place.serve(handler) as server:
            channels = [await place.connect(server.url) for _ in range(2)]
            async with asyncio.TaskGroup() as tasks:
                for seed in range(10):
                    tasks.create_task(user(channels, seed))
            gc.collect()
            await until(lambda: handler.opened == handler.closed)
            assert handler.opened > 20
            for channel in channels:
                counters = channel.metrics()
                assert counters["in_flight"] == counters["inbox_bytes"] == 0
                await channel.aclose()

    run(work())


@pytest.mark.parametrize("seed", range(3))
def test_threads_use_streams_at_random(streams: Channel, seed: int) -> None:
    """Each thread gets its own items in order, whatever the others do."""
    wrong: list[BaseException] = []

    def reads(chance: random.Random) -> None:
        stops = [chance.choice([None, 5, 100]) for _ in range(3)]
        opened = [streams.stream("count", (s,), credit=chance.choice([1, 2, 16])) for s in stops]
        expected = [0, 0, 0]
        for _ in range(chance.randrange(60)):
            which = chance.randrange(3)
            item = next(opened[which], None)
            if item is not None:
                assert item == expected[which]
                expected[which] += 1
            if chance.random() < 0.1:
                assert streams.call("echo", (item,), timeout=20) == item
            if chance.random() < 0.05:
                opened[which].close()

    def work(chance: random.Random) -> None:
        end = time.monotonic() + SECONDS
        try:
            while time.monotonic() < end:
                reads(chance)
        except BaseException as error:
            wrong.append(error)

    seeds = range(10 * seed, 10 * seed + 4)
    threads = [threading.Thread(target=work, args=(random.Random(s),)) for s in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []
    assert streams.metrics()["in_flight"] == 0
