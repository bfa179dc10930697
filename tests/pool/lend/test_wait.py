from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually
from tests.pool.services import Echo, Notes, Owned, Slow

THREADS = 8
CYCLES = 125
"""Of each of the threads: 1,000 leases together."""


@contextmanager
def held(
    pool: forebay.ServicePool, what: type[Echo] = Echo
) -> Iterator[tuple[int, threading.Event]]:
    """A service leased by another thread until the event is set; its process id."""
    told: Future[int] = Future()
    end = threading.Event()

    def hold() -> None:
        with pool.acquire(what) as service:
            told.set_result(service.lease.pid)
            end.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield told.result(timeout=10), end
    finally:
        end.set()
        thread.join()


def waiting(pool: forebay.ServicePool, count: int) -> bool:
    """Whether so many callers come to wait."""
    return eventually(lambda: pool.stats()["waiters"] == count)


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that run what they are given at once."""
    with ThreadPoolExecutor(count) as executor:
        yield executor


def test_waiters_are_served_in_the_order_of_asking(pool_of: PoolOf) -> None:
    """Nobody waits longer than those who came later."""
    order: list[int] = []

    def take(number: int) -> None:
        with pool.acquire(Echo) as echo:
            order.append(echo.echo(number))

    with pool_of(max_size=1) as pool, threads(6) as executor, pool.acquire(Echo):
        pending = []
        for number in range(6):
            pending.append(executor.submit(take, number))
            assert waiting(pool, number + 1)
        pool_is_full = pool.stats()["live"] == 1
    assert pool_is_full
    for done in pending:
        done.result()
    assert order == list(range(6))


def test_the_order_holds_between_kinds(pool_of: PoolOf) -> None:
    """A caller who wants another kind does not starve behind those who keep one kind busy."""
    order: list[int] = []

    def take(number: int) -> None:
        with pool.acquire(Echo.spec(base=number % 2)) as echo:
            order.append(echo.echo(number))

    with pool_of(max_size=1) as pool, threads(6) as executor:
        with pool.acquire(Echo):
            pending = []
            for number in range(6):
                pending.append(executor.submit(take, number))
                assert waiting(pool, number + 1)
        for done in pending:
            done.result(timeout=20)
    assert order == list(range(6))


def test_a_full_pool_says_so(pool_of: PoolOf) -> None:
    """The message says who holds what and what to change; the numbers are attributes."""
    with pool_of(max_size=1) as pool, pool.acquire(Echo):
        began = time.monotonic()
        with pytest.raises(forebay.DeadlineError) as caught, pool.acquire(Echo, timeout=0.1):
            pass
        assert 0.1 <= time.monotonic() - began < 10
    message = str(caught.value)
    assert caught.value.timeout == pytest.approx(0.1)
    assert isinstance(caught.value, TimeoutError)
    for part in ("Echo", "0.1 s", "at most 1", "1 are leased", "size (1)"):
        assert part in message


@pytest.mark.parametrize("timeout", [0, 0.0, 1e-9])
def test_a_timeout_of_nothing_takes_what_is_idle(pool_of: PoolOf, timeout: float) -> None:
    """Asking without waiting works, and fails at once where nothing is idle."""
    with pool_of(max_size=1) as pool:
        late = pytest.raises(forebay.DeadlineError)
        with pool.acquire(Echo), late, pool.acquire(Echo, timeout=timeout):
            pass
        with pool.acquire(Echo, timeout=timeout) as echo:
            assert echo.echo(1) == 1
        assert pool.stats()["waiters"] == 0


def test_a_waiter_is_served_when_the_lease_ends(pool_of: PoolOf) -> None:
    """The service goes from hand to hand without a poll in between."""
    took = []
    with pool_of(max_size=1) as pool, threads(1) as executor:

        def take() -> tuple[int, float]:
            with pool.acquire(Echo) as echo:
                return echo.lease.pid, time.monotonic()

        for _ in range(5):
            with held(pool) as (pid, end):
                pending = executor.submit(take)
                assert waiting(pool, 1)
                ended = time.monotonic()
                end.set()
                got, at = pending.result(timeout=10)
            assert got == pid
            took.append(at - ended)
    assert statistics.median(took) < 0.1


def test_a_waiter_is_served_when_a_held_service_dies(pool_of: PoolOf) -> None:
    """A dead service makes room although its holder has not noticed yet."""
    with (
        pool_of(max_size=1) as pool,
        threads(1) as executor,
        held(pool) as (victim, _),
    ):

        def take() -> int:
            with pool.acquire(Echo, timeout=10) as echo:
                return int(echo.lease.pid)

        pending = executor.submit(take)
        assert waiting(pool, 1)
        os.kill(victim, signal.SIGKILL)
        assert pending.result(timeout=10) != victim
        assert pool.stats()["live"] <= 1


def test_a_waiter_that_gives_up_leaves_its_place(pool_of: PoolOf) -> None:
    """A timeout in the middle of the queue neither holds it up nor takes a service along."""
    with pool_of(max_size=1) as pool, threads(2) as executor:

        def take(timeout: float) -> int:
            with pool.acquire(Echo, timeout=timeout) as echo:
                return int(echo.lease.pid)

        with held(pool) as (pid, end):
            impatient = executor.submit(take, 0.2)
            assert waiting(pool, 1)
            patient = executor.submit(take, 10)
            assert waiting(pool, 2)
            with pytest.raises(forebay.DeadlineError, match="1 other callers wait"):
                impatient.result()
            assert waiting(pool, 1)
            end.set()
            assert patient.result() == pid
        assert pool.stats()["waiters"] == 0
        assert pool.stats()["idle"] == 1


def test_an_idle_service_of_another_kind_makes_room(pool_of: PoolOf) -> None:
    """A pool full of services that nobody uses never refuses one that somebody wants."""
    with pool_of(max_size=2) as pool:
        with pool.acquire(Echo) as first, pool.acquire(Echo) as second:
            idle = [first.lease.pid, second.lease.pid]
        with pool.acquire(Notes) as notes:
            assert notes.read() == []
            assert pool.stats()["live"] == 2
        assert eventually(lambda: sum(map(alive, idle)) == 1)


def test_a_slow_start_blocks_no_other_kind(pool_of: PoolOf) -> None:
    """Who takes a warm service is not held up by somebody else's cold one."""
    with pool_of(max_size=3) as pool, threads(1) as executor:
        with pool.acquire(Echo), pool.acquire(Slow.spec(0.0)):
            pass  # templates are up
        slow = executor.submit(start_slow, pool, 3.0)
        assert eventually(lambda: pool.stats()["starts"] == 3)
        took = []
        while not slow.done():
            began = time.monotonic()
            with pool.acquire(Echo) as echo:
                took.append(time.monotonic() - began)
                assert echo.echo(1) == 1
        slow.result()
    assert statistics.median(took) < 0.01
    assert max(took) < 2.5, "far less than the slow start"


def start_slow(pool: forebay.ServicePool, seconds: float, timeout: float = 30.0) -> int:
    """Acquire a service that takes so long to start; its process id."""
    with pool.acquire(Slow.spec(seconds), timeout=timeout) as slow:
        return int(slow.lease.pid)


@pytest.mark.parametrize("max_size", [1, 2])
def test_an_abandoned_start_serves_the_next_caller(pool_of: PoolOf, max_size: int) -> None:
    """What one caller did not wait for is not started a second time."""
    with pool_of(max_size=max_size) as pool:
        start_slow(pool, 0.0)  # so that the template is there
        with pytest.raises(forebay.DeadlineError):
            start_slow(pool, 4.0, timeout=2.0)
        began = time.monotonic()
        start_slow(pool, 4.0)
        assert time.monotonic() - began < 3.9
        assert pool.stats()["starts"] == 2


def test_an_abandoned_start_holds_nobody_else_up(pool_of: PoolOf) -> None:
    """While one caller waits for a start that somebody left, warm services are lent."""
    with pool_of(max_size=2) as pool, threads(1) as executor:
        with pool.acquire(Echo):
            pass
        with pytest.raises(forebay.DeadlineError):
            start_slow(pool, 3.5, timeout=0.1)
        slow = executor.submit(start_slow, pool, 3.5)
        assert waiting(pool, 1)
        began = time.monotonic()
        with pool.acquire(Echo) as echo:
            assert time.monotonic() - began < 2.5, "far less than the slow start"
            assert echo.echo(1) == 1
            assert not slow.done()
        slow.result()
        assert pool.stats()["starts"] == 2


def test_cold_starts_overlap(pool_of: PoolOf) -> None:
    """Starts that are asked for together take as long as one."""
    with pool_of(max_size=4) as pool, threads(4) as executor:
        with pool.acquire(Slow.spec(0.0)):
            pass  # the template is up
        began = time.monotonic()
        pids = set(executor.map(lambda _: hold_slow(pool, 4), range(4)))
        assert time.monotonic() - began < 5, "one after another they take eight seconds"
    assert len(pids) == 4


def hold_slow(pool: forebay.ServicePool, count: int) -> int:
    """Acquire a slow service and hold it until so many are leased."""
    with pool.acquire(Slow.spec(2.0)) as slow:
        assert eventually(lambda: pool.stats()["leases"] >= count)
        return int(slow.lease.pid)


def test_a_closed_pool_ends_the_waiting(pool_of: PoolOf) -> None:
    """Nobody waits for a pool that is gone."""
    with pool_of(max_size=1) as pool, threads(3) as executor, pool.acquire(Echo):

        def take() -> None:
            with pool.acquire(Echo, timeout=None):
                pass

        pending = [executor.submit(take) for _ in range(3)]
        assert waiting(pool, 3)
        pool.close()
        for done in pending:
            with pytest.raises(forebay.ClosedError):
                done.result(timeout=5)


def test_a_thousand_leases_leak_nothing_and_share_nothing(pool_of: PoolOf) -> None:
    """Threads that compete for services never meet in one, and leave no descriptor open."""
    with pool_of(max_size=3) as pool:
        with (
            pool.acquire(Owned) as first,
            pool.acquire(Owned) as second,
            pool.acquire(Owned) as third,
        ):
            pids = {first.lease.pid, second.lease.pid, third.lease.pid}
        before = len(os.listdir("/proc/self/fd"))
        cycle(THREADS, lambda number: lease_owned(pool, number))
        # A thread is joined a moment before the kernel has closed what it slept on.
        assert eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert pool.stats()["leases"] == THREADS * CYCLES + 3
        assert pool.stats()["starts"] == 3
        assert pool.stats()["deaths"] == {}
        assert all(map(alive, pids))


def cycle(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in so many threads; raises what one of them raised."""
    with threads(count) as executor:
        list(executor.map(work, range(count)))


def lease_owned(pool: forebay.ServicePool, number: int) -> None:
    """Lease a service many times over, each time as its only owner."""
    for turn in range(CYCLES):
        with pool.acquire(Owned) as owned:
            token = f"{number}:{turn}"
            owned.enter(token)
            assert owned.leave(token) == token


def test_a_pool_that_churns_leaks_nothing(pool_of: PoolOf) -> None:
    """Starting and ending services for ever costs no descriptor either."""
    with pool_of(max_size=2) as pool:

        def churn(number: int) -> None:
            for turn in range(10):
                with pool.acquire(Echo.spec(base=(number + turn) % 5)) as echo:
                    assert echo.add(1) == (number + turn) % 5 + 1

        def descriptors() -> int:
            """How many are open once every death is known."""
            ended = pool.stats()["starts"] - pool.stats()["live"]
            assert eventually(lambda: sum(pool.stats()["deaths"].values()) == ended)
            return len(os.listdir("/proc/self/fd"))

        churn(0)
        before = descriptors()
        began = time.monotonic()
        cycle(4, churn)
        assert time.monotonic() - began < 10, "somebody waited out a timeout"
        # What ended last is let go of by the next start, so the end is made like the beginning. A
        # service that was ended for that start is let go of by the one after: two descriptors.
        churn(0)
        assert eventually(lambda: descriptors() <= before + 2)
        assert pool.stats()["live"] <= 2


def test_one_acquire_is_entered_once_at_a_time(pool_of: PoolOf) -> None:
    """An acquire that is entered twice would forget the first lease; it is refused instead."""
    with pool_of(max_size=2) as pool:
        again = pool.acquire(Echo)
        with again as echo:
            with pytest.raises(forebay.BusyError), again:
                pass
            assert echo.echo(1) == 1
        with again as echo:
            assert echo.echo(2) == 2
        assert pool.stats()["idle"] == 1


def test_times_are_taken_as_text_as_limits_take_them(
    pool: forebay.ServicePool,
) -> None:
    """`timeout="5s"` works for a call's limit, so it works for an acquire."""
    with pool.acquire(Echo, timeout="5s") as echo:
        assert echo.add(1) == 1
    with pytest.raises(forebay.ConfigError, match="time 'soon'"):
        pool.acquire(Echo, timeout="soon")
    with forebay.ServicePool(max_size=1, idle_timeout="5min", reset_timeout="500 ms") as other:
        assert (other.config.idle_timeout, other.config.reset_timeout) == (300.0, 0.5)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"max_size": "four"}, r"pool\.max_size, .*'four'"),
        ({"max_uses": 1.5}, r"pool\.max_uses, .*1\.5 is no whole number"),
        ({"idle_timeout": "soon"}, r"pool\.idle_timeout, .*'soon'"),
        ({"start_timeout": []}, r"pool\.start_timeout, .*\[\]"),
    ],
)
def test_a_setting_of_another_type_is_named(settings: dict[str, Any], named: str) -> None:
    """A number from a file that stayed text is told by its name, not as a TypeError."""
    with pytest.raises(forebay.ConfigError, match=named):
        forebay.ServicePool(**settings)
