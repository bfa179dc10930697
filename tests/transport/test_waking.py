"""A waiting task is run from the callback of its connection's socket, and nobody can tell."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forebay._core import MessageConnection
from forebay.errors import BusyError, ClosedError
from forebay.testing import connection_pair
from forebay.transport import AsyncConnection, ConnectionLimits, connect, listen, new_event_loop
from tests.loops import Run
from tests.transport.loops import echo

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def core_of(connection: AsyncConnection) -> MessageConnection:
    """What steps it."""
    core: MessageConnection = connection._core
    return core


def test_a_woken_task_is_the_current_one_in_its_own_context(run: Run) -> None:
    async def receive(connection: AsyncConnection, name: str) -> tuple[object, str]:
        who.set(name)
        await connection.recv()
        return asyncio.current_task(), who.get()

    async def main() -> None:
        async with connection_pair() as (near, far):
            task = asyncio.create_task(receive(far, "the receiver"))
            await asyncio.sleep(0)
            await near.send(b"x")
            assert await task == (task, "the receiver")
            assert who.get() == "nobody"

    run(main())


def test_a_cancelled_receiver_sees_its_message_and_loses_nothing(run: Run) -> None:
    async def main() -> None:
        async with connection_pair() as (near, far):
            task = asyncio.ensure_future(far.recv())
            await asyncio.sleep(0)
            assert task.cancel("why it ended")
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert caught.value.args == ("why it ended",)
            await near.send(b"still here")
            assert await far.recv() == [b"still here"]

    run(main())


def test_a_message_and_a_cancel_in_one_turn_lose_nothing(run: Run) -> None:
    async def main() -> None:
        async with connection_pair() as (near, far):
            for number in range(50):
                task = asyncio.ensure_future(far.recv())
                await asyncio.sleep(0)
                await near.send(b"%d" % number)
                asyncio.get_running_loop().call_soon(task.cancel)
                taken = await asyncio.gather(task, return_exceptions=True)
                if isinstance(taken[0], asyncio.CancelledError):
                    assert await far.recv() == [b"%d" % number]
                else:
                    assert taken[0] == [b"%d" % number]

    run(main())


def test_what_asyncio_does_with_futures_works(run: Run) -> None:
    async def main() -> None:
        async with connection_pair() as (near, far):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(far.recv(), 0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await far.recv()
            shielded = asyncio.ensure_future(far.recv())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(shielded), 0.01)
            await near.send(b"x")
            assert await asyncio.gather(shielded, near.send(b"y")) == [[b"x"], None]
            assert await far.recv() == [b"y"]

    run(main())


def test_two_receivers_are_refused_and_the_first_one_stays(run: Run) -> None:
    async def main() -> None:
        async with connection_pair() as (near, far):
            first = asyncio.ensure_future(far.recv())
            await asyncio.sleep(0)
            with pytest.raises(BusyError, match="another task"):
                await far.recv()
            await near.send(b"x")
            assert await first == [b"x"]

    run(main())


def test_a_woken_task_may_close_connections_whose_events_are_next(run: Run) -> None:
    async def main() -> None:
        async with connection_pair() as (near, far), connection_pair() as (there, here):
            ended: list[type[BaseException]] = []

            async def close_the_other(mine: AsyncConnection, other: AsyncConnection) -> None:
                try:
                    await mine.recv()
                    other.abort()
                except ClosedError as error:
                    ended.append(type(error))

            tasks = [
                asyncio.create_task(close_the_other(far, here)),
                asyncio.create_task(close_the_other(here, far)),
            ]
            await asyncio.sleep(0)
            await asyncio.gather(near.send(b"x"), there.send(b"y"))
            await asyncio.gather(*tasks)
            # Whoever was woken first closed the other one, maybe after that one had its message.
            closed = sorted(connection.closed for connection in (far, here))
            assert closed == [not ended, True]

    run(main())


def test_a_task_is_not_run_within_another_one(run: Run) -> None:
    async def main() -> None:
        async with connection_pair() as (near, far):
            task = asyncio.ensure_future(far.recv())
            await asyncio.sleep(0)
            await near.send(b"x")
            core_of(far).on_ready(1)  # as a loop within this task would
            assert asyncio.current_task() is not task
            assert not task.done()
            assert await task == [b"x"]

    run(main())


def test_tasks_written_in_python_are_woken_too(run: Run) -> None:
    class Task(asyncio.tasks._PyTask):  # type: ignore[name-defined, misc]
        pass

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
        return Task(work, loop=loop, **options)

    async def receive(connection: AsyncConnection) -> list[Any]:
        return await connection.recv()

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        async with connection_pair() as (near, far):
            first = asyncio.create_task(receive(far))
            assert type(first) is Task
            await asyncio.sleep(0)
            assert first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            second = asyncio.create_task(receive(far))
            await asyncio.sleep(0)
            await near.send(b"x")
            assert await second == [b"x"]
            assert first.cancelled()
        asyncio.get_running_loop().set_task_factory(None)

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin eagerly from 3.12 on")
def test_a_task_that_begins_eagerly_is_woken_too(run: Run) -> None:
    async def main() -> None:
        factory = getattr(asyncio, "eager_task_factory")  # noqa: B009 - unknown to 3.11's types
        asyncio.get_running_loop().set_task_factory(factory)
        async with connection_pair() as (near, far):
            waiting = asyncio.ensure_future(far.recv())
            await near.send(b"x")
            assert await waiting == [b"x"]
            await near.send(b"y")
            await asyncio.sleep(0.01)
            assert await asyncio.ensure_future(far.recv()) == [b"y"]
        asyncio.get_running_loop().set_task_factory(None)

    run(main())


@pytest.mark.parametrize("factory", [asyncio.SelectorEventLoop, new_event_loop])
def test_an_exit_in_a_woken_task_ends_the_loop_and_breaks_nothing(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def leave(connection: AsyncConnection) -> None:
        await connection.recv()
        raise SystemExit(3)

    loop = factory()
    pair = connection_pair()
    near, far = loop.run_until_complete(pair.__aenter__())
    leaving = loop.create_task(leave(far))

    async def send(content: bytes) -> None:
        await asyncio.sleep(0)
        await near.send(content)
        await asyncio.sleep(1)

    sending = loop.create_task(send(b"x"))
    with pytest.raises(SystemExit):
        loop.run_until_complete(sending)
    assert isinstance(leaving.exception(), SystemExit)
    sending.cancel()
    loop.run_until_complete(near.send(b"again"))
    assert loop.run_until_complete(far.recv()) == [b"again"]
    loop.run_until_complete(pair.__aexit__(None, None, None))
    loop.close()


def test_what_a_task_holds_is_freed_with_it(run: Run) -> None:
    class Kept:
        pass

    async def receive(connection: AsyncConnection, kept: Kept) -> Kept:
        await connection.recv()
        return kept

    async def main() -> None:
        async with connection_pair() as (near, far):
            task = asyncio.create_task(receive(far, Kept()))
            await asyncio.sleep(0)
            await near.send(b"x")
            kept = weakref.ref(await task)
            del task
            await asyncio.sleep(0)  # asyncio keeps it until the end of the turn
            assert kept() is None

    run(main())


@pytest.mark.parametrize("factory", [asyncio.SelectorEventLoop, new_event_loop])
def test_a_loop_closed_under_a_receiver_takes_everything_along(
    factory: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """What waits on a loop that is gone is freed with it: tasks, sockets, the loop itself."""

    async def open_both(listening: list[Any]) -> AsyncConnection:
        listening.append(await listen(f"unix://{tmp_path}/a.sock", echo))
        return await connect(listening[0].url, limits=ConnectionLimits(stall_timeout=60))

    loop = factory()
    listening: list[Any] = []
    connection = loop.run_until_complete(open_both(listening))
    number, gone = connection._core.fileno(), weakref.ref(loop)
    loop.create_task(connection.recv(), name="never woken")
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(listening.pop().aclose())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.set_exception_handler(lambda *_: None)  # "Task was destroyed but it is pending"
    loop.close()
    held = [loop, connection]
    del loop, connection
    with pytest.warns(ResourceWarning, match="never closed"):
        held.clear()
    gc.collect()
    gc.collect()  # the loop and its pending task go by turns
    assert gone() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
