from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

import forebay
from tests.pool.conftest import PoolOf, start_is_under_way
from tests.pool.processes import alive, eventually
from tests.pool.scripts import DELAYED, python
from tests.pool.services import Echo, Notes, Owned, Slow

Main = Callable[[], Coroutine[Any, Any, None]]


class Runner:
    """Runs coroutines on one kind of loop, in debug mode; fails at what the loop complains of."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.factory = factory

    def __call__(self, main: Main) -> None:
        complaints: list[dict[str, Any]] = []

        async def watched() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            before = readers(loop)
            await main()
            await asyncio.sleep(0)
            assert readers(loop) == before, "a reader is left on the loop"
            gc.collect()

        with asyncio.Runner(debug=True, loop_factory=self.factory) as runner:
            runner.run(watched())
        assert complaints == []


def readers(loop: asyncio.AbstractEventLoop) -> int:
    """How many descriptors a selector loop watches; for uvloop the leak guard looks."""
    selector = getattr(loop, "_selector", None)
    return len(selector.get_map()) if selector is not None else 0


@pytest.fixture(scope="module", autouse=True)
def _warm_uvloop() -> None:
    """Its first loop in a process opens a pipe that it keeps."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.sleep(0))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Each test runs on both loops."""
    return Runner(request.param)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Let the loop turn until something is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - for counters that tell nobody
            await asyncio.sleep(0)


async def cancelled(task: asyncio.Task[Any]) -> float:
    """Cancel a task; how long it took to end."""
    began = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return time.monotonic() - began


async def take(pool: forebay.ServicePool, value: Any = 1) -> Any:
    """One call under a lease of its own."""
    async with pool.acquire(Echo) as echo:
        return await echo.echo(value)


def test_a_service_is_leased_and_called_from_a_loop(run: Runner, pool: forebay.ServicePool) -> None:
    """`async with` and `await` do what `with` and a call do."""

    async def main() -> None:
        async with pool.acquire(Echo.spec(base=40)) as echo:
            pid = echo.lease.pid
            assert await echo.add(2) == 42
            with pytest.raises(ValueError, match="bad luck"):
                await echo.fail("bad luck")
        async with pool.acquire(Echo.spec(base=40)) as echo:
            assert echo.lease.pid == pid
        with pytest.raises(forebay.StaleError):
            await echo.add(2)

    run(main)


def test_tasks_wait_for_a_full_pool_in_order(pool_of: PoolOf, run: Runner) -> None:
    """Many tasks share few services; who asks first is served first."""

    async def main() -> None:
        order: list[int] = []

        async def work(number: int) -> None:
            async with pool.acquire(Echo) as echo:
                order.append(await echo.echo(number))

        async with asyncio.TaskGroup() as group, pool.acquire(Echo):
            for number in range(6):
                group.create_task(work(number))
                await until(lambda: pool.stats()["waiters"] == number + 1)  # noqa: B023
        assert order == list(range(6))

    with pool_of(max_size=1) as pool:
        run(main)
        assert pool.stats()["starts"] == 1


def test_a_service_with_a_reset_goes_from_task_to_task(pool_of: PoolOf, run: Runner) -> None:
    """The next task takes the reset's answer, and finds a clean service."""

    async def main() -> None:
        async def work(number: int) -> None:
            for turn in range(20):
                async with pool.acquire(Owned) as owned:
                    token = f"{number}:{turn}"
                    await owned.enter(token)
                    assert await owned.leave(token) == token

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(work(number))

    with pool_of(max_size=2) as pool:
        run(main)
        assert pool.stats()["deaths"] == {}
        assert pool.stats()["leases"] == 100


def test_a_task_that_waits_can_be_cancelled(pool_of: PoolOf, run: Runner) -> None:
    """It leaves the queue, at once, and the others move up."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            async with pool.acquire(Echo):
                first = asyncio.create_task(take(pool))
                await until(lambda: pool.stats()["waiters"] == 1)
                second = group.create_task(take(pool, "second"))
                await until(lambda: pool.stats()["waiters"] == 2)
                assert await cancelled(first) < 10
                assert pool.stats()["waiters"] == 1
            assert await second == "second"
        assert (pool.stats()["idle"], pool.stats()["live"]) == (1, 1)

    with pool_of(max_size=1) as pool:
        run(main)


def test_a_start_that_is_cancelled_serves_the_next_task(pool_of: PoolOf, run: Runner) -> None:
    """A cancelled acquire is free at once, and what it had started is not started again."""

    async def start() -> None:
        async with pool.acquire(Slow.spec(3.0)) as slow:
            assert await slow.echo(1) == 1

    async def main() -> None:
        first = asyncio.create_task(start())
        await until(lambda: start_is_under_way(pool))
        assert await cancelled(first) < 2, "far less than the start takes"
        await start()
        assert pool.stats()["starts"] == 1

    with pool_of(max_size=2) as pool:
        run(main)


def test_a_program_whose_start_is_cancelled_serves_the_next_task(
    pool_of: PoolOf, run: Runner, tmp_path: Path
) -> None:
    """The same for a program and its byte."""
    command = python(tmp_path, DELAYED, "3")

    async def start(timeout: float = 20) -> int:
        async with pool.acquire(command, timeout=timeout) as backend:
            return int(backend.lease.pid)

    async def main() -> None:
        first = asyncio.create_task(start())
        await until(lambda: start_is_under_way(pool))
        assert await cancelled(first) < 2, "far less than the start takes"
        with pytest.raises(forebay.DeadlineError):
            await start(timeout=0.05)
        await start()
        assert pool.stats()["starts"] == 1

    with pool_of(max_size=2) as pool:
        run(main)


@pytest.mark.parametrize("turns", range(12))
def test_an_acquire_cancelled_at_any_turn_leaves_the_pool_whole(
    pool_of: PoolOf, run: Runner, turns: int
) -> None:
    """However far an acquire has come, its cancellation loses no service and no place."""

    async def main() -> None:
        holder = pool.acquire(Echo)
        await holder.__aenter__()
        waiter = asyncio.create_task(take(pool))
        await until(lambda: pool.stats()["waiters"] == 1)
        await holder.__aexit__(None, None, None)  # granted now, told in the next turns
        for _ in range(turns):
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        assert await take(pool, "next") == "next"
        stats = pool.stats()
        assert (stats["waiters"], stats["settling"], stats["live"]) == (0, 0, 1)

    with pool_of(max_size=1) as pool:
        run(main)


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 4, 6, 8])
def test_a_cold_acquire_cancelled_at_any_time_leaves_the_pool_whole(
    pool_of: PoolOf, run: Runner, milliseconds: int
) -> None:
    """The same while a service is being forked, is starting, or has become known."""

    async def main() -> None:
        for kind in range(4):
            task = asyncio.create_task(hold(Echo.spec(base=kind)))
            await asyncio.sleep(milliseconds / 1000 + kind / 4000)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with pool.acquire(Notes, timeout=5) as notes, pool.acquire(Echo, timeout=5) as echo:
            assert await notes.read() == []
            assert await echo.echo(1) == 1

    async def hold(what: Any) -> None:
        async with pool.acquire(what):
            await asyncio.sleep(3600)

    with pool_of(max_size=2) as pool:
        with pool.acquire(Echo):
            pass  # the template is up
        run(main)
        assert eventually(lambda: pool.stats()["settling"] == 0)
        assert pool.stats()["live"] <= 2


def test_a_cancelled_call_frees_its_caller_and_ends_its_service(
    pool_of: PoolOf, run: Runner
) -> None:
    """The caller does not wait for a service that hangs, and nobody else gets it."""

    async def main() -> None:
        pids = []

        async def hang() -> None:
            async with pool.acquire(Echo) as echo:
                pids.append(echo.lease.pid)
                await echo.hang()

        task = asyncio.create_task(hang())
        await until(lambda: bool(pids))
        await asyncio.sleep(0)
        assert await cancelled(task) < 10
        async with pool.acquire(Echo) as echo:
            assert echo.lease.pid != pids[0]
            assert await echo.echo(1) == 1
        await until(lambda: not alive(pids[0]))

    with pool_of(max_size=1) as pool:
        run(main)


def test_threads_and_tasks_share_a_pool(pool_of: PoolOf, run: Runner) -> None:
    """Whoever asks first is served first, thread or task, and no service has two owners."""

    def block(number: int) -> None:
        for turn in range(40):
            with pool.acquire(Owned) as owned:
                owned.enter(f"thread {number}:{turn}")
                owned.leave(f"thread {number}:{turn}")

    async def main() -> None:
        async def work(number: int) -> None:
            for turn in range(40):
                async with pool.acquire(Owned) as owned:
                    await owned.enter(f"task {number}:{turn}")
                    await owned.leave(f"task {number}:{turn}")

        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(work(number))
                group.create_task(_await(loop.run_in_executor(executor, block, number)))

    with pool_of(max_size=2) as pool, ThreadPoolExecutor(3) as executor:
        run(main)
        assert pool.stats()["leases"] == 6 * 40
        assert pool.stats()["deaths"] == {}
        assert pool.stats()["live"] == 2


async def _await(awaitable: Awaitable[None]) -> None:
    await awaitable


def test_two_loops_share_a_pool(pool_of: PoolOf, run: Runner) -> None:
    """A service goes from a task of one loop to a task of another."""

    async def main() -> None:
        async def work(name: str) -> None:
            for turn in range(30):
                async with pool.acquire(Owned) as owned:
                    await owned.enter(f"{name}:{turn}")
                    await owned.leave(f"{name}:{turn}")

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(work(f"{threading.get_ident()}:{number}"))

    with pool_of(max_size=2) as pool, ThreadPoolExecutor(2) as executor:
        list(executor.map(run, [main, main]))
        assert pool.stats()["leases"] == 180
        assert pool.stats()["deaths"] == {}


def test_a_warm_service_serves_loops_one_after_another(pool_of: PoolOf, run: Runner) -> None:
    """A service belongs to no loop between leases: each asyncio.run finds it warm."""

    async def main() -> None:
        async with pool.acquire(Notes) as notes:
            assert await notes.note("x") == 1

    with pool_of(max_size=1) as pool:
        for _ in range(5):
            run(main)
            with pool.acquire(Notes) as notes:
                assert notes.note("y") == 1
        assert pool.stats()["starts"] == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_closed_over_a_lease_loses_only_that_service(pool_of: PoolOf, run: Runner) -> None:
    """A loop that ends under a task that holds a lease does not spoil the pool for others."""
    with pool_of(max_size=1) as pool:
        loop = run.factory()
        acquired = pool.acquire(Echo)

        async def enter() -> Any:
            return await acquired.__aenter__()

        echo = loop.run_until_complete(enter())
        assert loop.run_until_complete(echo.echo(1)) == 1
        loop.close()
        acquired.__exit__()
        with pool.acquire(Echo, timeout=5) as echo:
            assert echo.echo(2) == 2


def test_a_pool_closed_under_tasks_ends_their_waiting(pool_of: PoolOf, run: Runner) -> None:
    """Every task that waits is told, and the loop has nothing to complain of."""

    async def main() -> None:
        async with pool.acquire(Echo) as echo:
            tasks = [asyncio.create_task(take(pool)) for _ in range(3)]
            call = asyncio.create_task(echo.hang())
            await until(lambda: pool.stats()["waiters"] == 3)
            await pool.aclose()
            for task in tasks:
                with pytest.raises(forebay.ClosedError):
                    await task
            with pytest.raises(forebay.Error):
                await call
            with pytest.raises(forebay.Error):
                await echo.echo(1)

    with pool_of(max_size=1) as pool:
        run(main)


def test_a_pool_closed_between_a_grant_and_its_task_ends_the_waiting(
    pool_of: PoolOf, run: Runner
) -> None:
    """A task that was told and has not run yet finds the pool closed, and leaves no reader."""

    async def main() -> None:
        holder = pool.acquire(Echo)
        await holder.__aenter__()
        waiter = asyncio.create_task(take(pool))
        await until(lambda: pool.stats()["waiters"] == 1)
        await holder.__aexit__(None, None, None)  # granted and told now
        pool.close()
        with pytest.raises(forebay.ClosedError):
            await waiter

    with pool_of(max_size=1) as pool:
        run(main)


def test_a_death_is_told_to_a_task(run: Runner, pool: forebay.ServicePool) -> None:
    """The cause arrives on the loop as it does in a thread."""

    async def main() -> None:
        async with pool.acquire(Echo) as echo:
            with pytest.raises(forebay.DiedError, match="code 7") as caught:
                await echo.leave(7)
            assert caught.value.exit_code == 7
        async with pool.acquire(Echo) as echo:
            assert await echo.echo(1) == 1

    run(main)


def test_a_full_pool_says_so_to_a_task(pool_of: PoolOf, run: Runner) -> None:
    """The timeout of an awaited acquire is the pool's own error."""

    async def main() -> None:
        async with pool.acquire(Echo):
            with pytest.raises(forebay.DeadlineError, match=r"max.size"):
                async with pool.acquire(Echo, timeout=0.1):
                    pass

    with pool_of(max_size=1) as pool:
        run(main)


def test_a_timeout_around_a_waiting_task_is_the_tasks_own(pool_of: PoolOf, run: Runner) -> None:
    """`asyncio.timeout` works as around anything else."""

    async def main() -> None:
        async with pool.acquire(Echo):
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.1), pool.acquire(Echo):
                    pass
            assert not isinstance(caught.value, forebay.Error)
        assert await take(pool) == 1

    with pool_of(max_size=1) as pool:
        run(main)


def test_a_loop_holds_no_descriptor_after_it_is_gone(pool_of: PoolOf, run: Runner) -> None:
    """A program that runs one loop after another does not run out of descriptors."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(take(pool))

    with pool_of(max_size=1) as pool:
        run(main)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            run(main)
        assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
