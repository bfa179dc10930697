"""Awaited calls, on asyncio and uvloop in debug mode."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import numpy as np
import pytest

from forebay._core import OUTBOX_BYTES_HIGH
from forebay.errors import BrokenError, BusyError, ClosedError, DeadlineError
from forebay.rpc import Channel
from tests.pool.processes import open_files_limited

from .conftest import Run, Service


def test_calls_are_answered_while_others_wait(channel: Channel, run: Run) -> None:
    """Many awaited calls share one connection."""

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(channel.on_loop.call("echo", (at,))) for at in range(300)]
        assert [call.result() for call in calls] == list(range(300))

    run(work())


def test_large_arrays_go_both_ways(channel: Channel, run: Run) -> None:
    """Frames that the kernel takes in parts arrive whole, several at once."""
    array = np.arange(500_000, dtype=float)

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            calls = [
                tasks.create_task(channel.on_loop.call("echo", (array + at,))) for at in range(5)
            ]
        for at, call in enumerate(calls):
            assert np.array_equal(call.result(), array + at)

    run(work())


def test_cancelling_reaches_the_service_and_frees_the_caller(
    channel: Channel, run: Run, tmp_path: Path
) -> None:
    """A cancelled task stops waiting at once; the channel stays usable."""
    begun = tmp_path / "begun"

    async def work() -> None:
        task = asyncio.create_task(channel.on_loop.call("wait", (20.0, str(begun))))
        while not begun.exists():  # noqa: ASYNC110 - the event is in another process
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await channel.on_loop.call("noted") == ["cancelled"]

    run(work())


@pytest.mark.parametrize("size", [10, 300_000])
def test_cancelling_at_any_point_loses_no_other_call(channel: Channel, run: Run, size: int) -> None:
    """Whatever a cancelled call was doing, others get their own answers."""
    body = b"x" * size

    async def work() -> None:
        for steps in range(25):
            victim = asyncio.create_task(channel.on_loop.call("echo", (body,)))
            other = asyncio.create_task(channel.on_loop.call("echo", (steps,)))
            for _ in range(steps):
                await asyncio.sleep(0)
            victim.cancel()
            await asyncio.gather(victim, return_exceptions=True)
            assert await other == steps
        assert channel.metrics()["in_flight"] == 0

    run(work())


@pytest.mark.parametrize("room", [0, 1], ids=["for none", "for the socket alone"])
def test_a_first_call_without_a_free_descriptor_leaves_the_channel_usable(
    channel: Channel, run: Run, room: int
) -> None:
    """It raises, and once there are descriptors again calls of both kinds are answered."""

    async def work() -> None:
        assert await channel.on_loop.call("echo", (0,)) == 0  # everything is imported
        channel.unbind()
        with open_files_limited(room), pytest.raises(OSError, match="Too many open files"):
            await channel.on_loop.call("echo", (1,))
        assert channel.call("echo", (2,), timeout=20) == 2
        assert await channel.on_loop.call("echo", (3,)) == 3

    run(work())


def test_a_deadline_ends_an_awaited_call(channel: Channel, run: Run) -> None:
    """A hung service does not hold a task for ever."""

    async def work() -> None:
        with pytest.raises(DeadlineError, match=r"within 0\.1 s; give a longer timeout="):
            await channel.on_loop.call("wait", (20.0,), timeout=0.1)
        assert await channel.on_loop.call("noted") == ["cancelled"]

    run(work())


def test_a_killed_service_ends_awaited_calls(service: Service, run: Run) -> None:
    """Every task learns of the death, and later calls say that they were not delivered."""
    with service.channel() as channel:

        async def work() -> None:
            tasks = [asyncio.create_task(channel.on_loop.call("wait", (20.0,))) for _ in range(3)]
            await asyncio.sleep(0)
            service.kill()
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(error, BrokenError)
            with pytest.raises(BrokenError) as caught:
                await channel.on_loop.call("echo", (1,))
            assert caught.value.delivered == "no"
            channel.close()

        run(work())


def test_a_channel_moves_between_loops_and_threads(channel: Channel, run: Run) -> None:
    """An idle channel belongs to nobody once it is unbound."""

    async def work() -> None:
        assert await channel.on_loop.call("echo", (1,)) == 1
        with pytest.raises(BusyError):
            channel.call("echo", (2,))
        with pytest.raises(BusyError):
            channel.submit("echo", (2,))
        waiting = asyncio.create_task(channel.on_loop.call("wait", (0.1,)))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            channel.unbind()
        await waiting
        channel.unbind()
        assert channel.call("echo", (2,)) == 2
        assert await channel.on_loop.call("echo", (3,)) == 3

    run(work())
    channel.unbind()  # its loop is closed by now
    assert channel.call("echo", (4,)) == 4

    async def again() -> None:
        assert await channel.on_loop.call("echo", (5,)) == 5

    run(again())
    run(again())


def test_closing_ends_awaited_calls(channel: Channel, run: Run) -> None:
    """No task waits for ever on a closed channel."""

    async def work() -> None:
        task = asyncio.create_task(channel.on_loop.call("wait", (20.0,)))
        await asyncio.sleep(0)
        channel.close()
        with pytest.raises(ClosedError):
            await task
        with pytest.raises(ClosedError):
            await channel.on_loop.call("echo", (1,))

    run(work())


def test_waiting_for_room_counts_into_the_time_of_a_call(
    channel: Channel, service: Service, run: Run
) -> None:
    """A timeout of two seconds is not four for a caller whose outbox was full at first."""
    large = bytes(4 << 20)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        service.process.send_signal(signal.SIGSTOP)
        filling = [asyncio.create_task(channel.on_loop.call("echo", (large,))) for _ in range(8)]
        while channel.metrics()["outbox_bytes"] <= OUTBOX_BYTES_HIGH:  # noqa: ASYNC110
            await asyncio.sleep(0)
        begun = loop.time()
        late = asyncio.create_task(channel.on_loop.call("remaining", timeout=20))
        while loop.time() < begun + 0.3:  # noqa: ASYNC110 - the time itself is what is meant
            await asyncio.sleep(0)
        waited = loop.time() - begun
        service.process.send_signal(signal.SIGCONT)
        assert 0 < await late <= 20 - waited
        await asyncio.gather(*filling)

    run(work())


def test_time_that_ends_before_there_is_room_is_the_calls(
    channel: Channel, service: Service, run: Run
) -> None:
    """It says that the peer takes no bytes, and the channel stays usable."""
    large = bytes(4 << 20)

    async def work() -> None:
        service.process.send_signal(signal.SIGSTOP)
        filling = [asyncio.create_task(channel.on_loop.call("echo", (large,))) for _ in range(8)]
        while channel.metrics()["outbox_bytes"] <= OUTBOX_BYTES_HIGH:  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(DeadlineError, match=r"takes no bytes: the outbox was full for 0\.05 s"):
            await channel.on_loop.call("echo", (1,), timeout=0.05)
        service.process.send_signal(signal.SIGCONT)
        assert await channel.on_loop.call("echo", (1,)) == 1
        await asyncio.gather(*filling)

    run(work())
