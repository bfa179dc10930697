"""Streams of results that tasks read, on asyncio, uvloop and our own loop."""

from __future__ import annotations

import asyncio
import gc
import signal
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import BrokenError, BusyError, ClosedError, DeadlineError, RemoteError
from forebay.rpc import Channel

from .conftest import Run, Service


async def first(stream: Any, count: int) -> list[Any]:
    return [await anext(stream) for _ in range(count)]


async def collect(stream: Any, into: list[Any]) -> None:
    """Also what comes before an error."""
    async for item in stream:
        into.append(item)  # noqa: PERF401 - a comprehension would lose it


async def until_logged(channel: Channel, expected: list[str]) -> None:
    while await channel.on_loop.call("logged") != expected:  # noqa: ASYNC110 - the event is elsewhere
        await asyncio.sleep(0)


@pytest.mark.parametrize("credit", [1, 2, 16, 65_536])
def test_items_arrive_in_order_and_then_the_end(streams: Channel, run: Run, credit: int) -> None:
    """A stream is the list that the method would have returned."""

    async def work() -> None:
        stream = streams.on_loop.stream("count", (500,), credit=credit)
        assert [item async for item in stream] == list(range(500))
        assert [item async for item in stream] == [], "it stays at its end"
        assert streams.metrics()["in_flight"] == 0
        streams.unbind()

    run(work())


def test_streams_and_calls_of_many_tasks_share_a_connection(streams: Channel, run: Run) -> None:
    """Each task gets its own items and answers."""

    async def read(size: int) -> None:
        stream = streams.on_loop.stream("count", (size,), credit=5)
        assert [item async for item in stream] == list(range(size))

    async def arrays() -> None:
        number = 0
        async for array in streams.on_loop.stream("arrays", (30, 20_000)):
            assert (array == number).all()
            number += 1
        assert number == 30

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(read(100 + number))
            tasks.create_task(arrays())
            calls = [tasks.create_task(streams.on_loop.call("echo", (at,))) for at in range(100)]
        assert [call.result() for call in calls] == list(range(100))

    run(work())


def test_a_call_between_two_items_is_answered(streams: Channel, run: Run) -> None:
    """Who calls while it iterates does not wait for a stream that waits for it."""

    async def work() -> None:
        async for item in streams.on_loop.stream("count", (100,), credit=4):
            assert await streams.on_loop.call("echo", (item,)) == item
            assert await streams.on_loop.call("progress") <= item + 1 + 4

    run(work())


@pytest.mark.parametrize("how", ["aclose", "with", "break"])
def test_leaving_early_closes_the_generator(streams: Channel, run: Run, how: str) -> None:
    """However a stream is left, the generator's `finally` runs, and the channel goes on."""

    async def work() -> None:
        if how == "with":
            async with streams.on_loop.stream("count") as stream:
                assert await anext(stream) == 0
        elif how == "aclose":
            stream = streams.on_loop.stream("count")
            assert await first(stream, 3) == [0, 1, 2]
            await stream.aclose()
            await stream.aclose()
            assert [item async for item in stream] == []
        else:
            async for item in streams.on_loop.stream("count"):
                if item == 5:
                    break
            gc.collect()
        await until_logged(streams, ["left", "closed"])
        streams.unbind()

    run(work())
    assert streams.metrics()["in_flight"] == 0


def test_a_cancelled_wait_loses_no_item(streams: Channel, run: Run) -> None:
    """A task that is cancelled while it waits leaves the stream as it was."""

    async def work() -> None:
        stream = streams.on_loop.stream("slow", (0.001,), credit=2)
        got = []
        for steps in range(60):
            task = asyncio.create_task(stream.__anext__())
            for _ in range(steps % 7):
                await asyncio.sleep(0)
            task.cancel()
            try:
                got.append(await task)
            except asyncio.CancelledError:
                got.append(await anext(stream))
        assert got == list(range(60))
        await stream.aclose()

    run(work())


def test_a_cancelled_task_in_a_with_block_cancels_the_stream(streams: Channel, run: Run) -> None:
    """The generator of a cancelled consumer is closed."""

    async def consume() -> None:
        async with streams.on_loop.stream("slow", (0.01,)) as stream:
            async for _ in stream:
                pass

    async def work() -> None:
        task = asyncio.create_task(consume())
        while streams.metrics()["received_bytes"] < 400:  # noqa: ASYNC110 - the event is elsewhere
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_logged(streams, ["closed"])

    run(work())


def test_an_exception_comes_after_the_items_before_it(streams: Channel, run: Run) -> None:
    """What was yielded is not lost because of what came later."""

    async def work() -> None:
        stream = streams.on_loop.stream("fail_after", (40,))
        assert await first(stream, 40) == list(range(40))
        with pytest.raises(ValueError, match="after 40") as caught:
            await anext(stream)
        assert isinstance(caught.value, RemoteError)
        assert [item async for item in stream] == []

    run(work())


def test_the_deadline_is_that_of_the_whole_stream(streams: Channel, run: Run) -> None:
    """Items that keep coming do not put it off, and the generator is closed."""

    async def work() -> None:
        got: list[int] = []
        with pytest.raises(DeadlineError) as caught:
            await collect(streams.on_loop.stream("slow", (0.01,), timeout=0.3), got)
        assert got[:3] == [0, 1, 2]
        assert caught.value.timeout == 0.3
        await until_logged(streams, ["closed"])

    run(work())


def test_a_stream_that_never_yields_can_be_left(streams: Channel, run: Run, tmp_path: Path) -> None:
    """A hung method does not hold a task, and sees that it was left."""
    begun = tmp_path / "begun"

    async def work() -> None:
        task = asyncio.create_task(
            anext(streams.on_loop.stream("stuck", (str(begun),), timeout=10))
        )
        while not begun.exists():  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gc.collect()
        await until_logged(streams, ["cancelled"])

    run(work())


def test_a_service_killed_in_mid_stream(streaming: Service, run: Run) -> None:
    """What it sent is given, then BrokenError says that it had begun."""
    with streaming.channel() as channel:

        async def work() -> None:
            got: list[int] = []
            with pytest.raises(BrokenError) as caught:
                await collect(channel.on_loop.stream("die_after", (10,)), got)
            assert got == list(range(len(got)))
            assert caught.value.delivered == "maybe"
            channel.close()

        run(work())


def test_an_open_stream_keeps_its_channel_on_the_loop(streams: Channel, run: Run) -> None:
    """A thread cannot take the reader's place under a stream."""

    async def work() -> None:
        async with streams.on_loop.stream("count") as stream:
            assert await anext(stream) == 0
            with pytest.raises(BusyError):
                streams.unbind()
            with pytest.raises(BusyError):
                streams.stream("count")
        streams.unbind()
        assert list(streams.stream("count", (50,))) == list(range(50))

    run(work())


def test_closing_the_channel_ends_its_streams(streams: Channel, run: Run, tmp_path: Path) -> None:
    """No task waits for ever on a closed channel."""

    async def work() -> None:
        stream = streams.on_loop.stream("stuck", (str(tmp_path / "begun"),))
        task = asyncio.create_task(anext(stream))
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - the event is elsewhere
            await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await anext(stream)
        streams.close()
        with pytest.raises(ClosedError):
            await task

    run(work())


def test_a_stream_that_was_cancelled_before_its_call_begins_anew(
    streaming: Service, streams: Channel, run: Run
) -> None:
    """What was never sent does not look like a stream without items."""

    async def work() -> None:
        streaming.process.send_signal(signal.SIGSTOP)
        filling = asyncio.create_task(streams.on_loop.call("echo", (bytes(8 << 20),)))
        while streams.metrics()["outbox_bytes"] < 1 << 20:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)
        stream = streams.on_loop.stream("count", (3,), timeout=20)
        begun = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)  # it waits for room
        with pytest.raises(BusyError, match="another task"):
            await anext(stream)
        begun.cancel()
        with pytest.raises(asyncio.CancelledError):
            await begun
        closed = streams.on_loop.stream("count", (3,))
        left = asyncio.create_task(anext(closed))
        await asyncio.sleep(0)
        closed.close()
        streaming.process.send_signal(signal.SIGCONT)
        await filling
        assert [item async for item in stream] == [0, 1, 2]
        with pytest.raises(StopAsyncIteration):
            await left
        assert await streams.on_loop.call("logged") == ["closed"]

    run(work())


def test_many_items_of_a_megabyte_need_little_memory(streams: Channel, run: Run) -> None:
    """At no time is more than a few items on the way."""
    size = 1_000_000

    async def work() -> None:
        most = number = 0
        async for block in streams.on_loop.stream("blocks", (300, size), credit=64):
            assert int.from_bytes(block[:8], "little") == number
            number += 1
            most = max(most, streams.metrics()["inbox_bytes"])
        assert number == 300
        assert most < (2 << 20) + size

    run(work())
