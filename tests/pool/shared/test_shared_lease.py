"""Several leases of one service at once, where the service says so."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import forebay
from forebay.pool.lend.acquire import JOINED, OwnBorrow
from forebay.pool.lend.record import PythonRecord
from forebay.pool.lend.wait import THREADS
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually
from tests.pool.services import Sessions


def test_leases_share_a_service_up_to_its_maximum(pool: Any) -> None:
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(pool.acquire(Sessions, timeout=10)) for _ in range(6)]
        pids = [session.lease.pid for session in sessions]
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3]
        assert pool.stats()["live"] == 2
        with pytest.raises(forebay.DeadlineError), pool.acquire(Sessions, timeout=0.05):
            pass
        sessions[0].step("a", 1)
        sessions[1].step("b", 2)
        assert sessions[2].step("a", 3) == [1, 3]
        assert sessions[0].cached() == 3, "what one compiled serves the others"


def test_it_is_reset_with_the_last_lease(pool: Any) -> None:
    first, second = pool.acquire(Sessions), pool.acquire(Sessions)
    with first as one:
        with second as other:
            assert one.lease.pid == other.lease.pid
            other.step("b", 1)
        assert one.count() == 0
        with pytest.raises(forebay.StaleError):
            other.step("b", 2)
    with pool.acquire(Sessions) as again:
        assert (again.count(), again.step("b", 5)) == (1, [5])


def test_a_waiter_joins_when_a_place_is_free(pool_of: PoolOf) -> None:
    with pool_of(max_size=1) as pool, ThreadPoolExecutor(1) as executor:
        leases = [pool.acquire(Sessions) for _ in range(3)]
        for lease in leases:
            lease.__enter__()

        def join() -> list[int]:
            with pool.acquire(Sessions, timeout=10) as session:
                return session.step("late", 1)

        late = executor.submit(join)
        assert eventually(lambda: pool.stats()["waiters"] == 1)
        leases[0].__exit__()
        assert late.result(10) == [1]
        for lease in leases[1:]:
            lease.__exit__()


def test_nobody_joins_a_service_whose_call_timed_out(pool: Any) -> None:
    with pool.acquire(Sessions) as kept:
        with pool.acquire(Sessions) as hung, pytest.raises(forebay.DeadlineError):
            hung.lease.options(timeout=0.05).hang()
        with pool.acquire(Sessions, timeout=10) as other:
            assert other.lease.pid != kept.lease.pid
        pid = kept.lease.pid
        assert alive(pid)
    assert eventually(lambda: not alive(pid)), "it ends with its last lease"


def test_all_who_share_a_service_learn_of_its_death(pool: Any) -> None:
    with pool.acquire(Sessions) as one, pool.acquire(Sessions) as other:
        os.kill(one.lease.pid, signal.SIGKILL)
        for session in (one, other):
            with pytest.raises(forebay.DiedError, match="SIGKILL"):
                session.step("a", 1)
    with pool.acquire(Sessions, timeout=10) as again:
        assert again.step("a", 1) == [1]
    assert eventually(lambda: pool.stats()["live"] == 1)


async def on_a_loop(pool: Any) -> list[list[int]]:
    async with pool.acquire(Sessions) as one, pool.acquire(Sessions) as other:
        assert one.lease.pid == other.lease.pid
        return await asyncio.gather(one.step("a", 1), other.step("b", 2), one.step("a", 3))


def test_leases_on_one_event_loop_share_a_service(pool: Any) -> None:
    assert asyncio.run(on_a_loop(pool)) == [[1], [2], [1, 3]]


def test_threads_share_services(pool: Any) -> None:
    def episode(number: int) -> bool:
        with pool.acquire(Sessions, timeout=30) as session:
            name = str(number)
            return all(session.step(name, n) == list(range(n + 1)) for n in range(5))

    with ThreadPoolExecutor(8) as executor:
        assert all(executor.map(episode, range(64)))
    assert pool.stats()["leased"] == 0


def test_nobody_joins_a_service_that_its_last_holder_is_giving_back(
    pool: Any,
) -> None:
    with pool.acquire(Sessions) as one:
        core = pool.link().core if isinstance(pool, forebay.SharedPool) else pool.core
        assert not core.release_shared(one.lease._handle, False), "it was the last"
        with pool.acquire(Sessions) as other:
            assert other.lease.pid != one.lease.pid


def test_a_lost_lease_leaves_the_others_alone(pool: Any) -> None:
    with pool.acquire(Sessions) as kept:
        lost: Any = pool.acquire(Sessions).__enter__()
        pid = lost.lease.pid
        assert pid == kept.lease.pid
        del lost
        gc.collect()
        with pool.acquire(Sessions, timeout=10) as other:
            assert other.lease.pid != pid, "what a lost lease may still be calling is not joined"
        assert kept.step("a", 1) == [1]
    assert eventually(lambda: not alive(pid))


async def leave_what_was_granted(pool: Any) -> None:
    held = [pool.acquire(Sessions) for _ in range(3)]
    sessions = [await acquire.__aenter__() for acquire in held]
    waiting = asyncio.create_task(pool.acquire(Sessions).__aenter__())
    await asyncio.sleep(0)
    assert pool.stats()["waiters"] == 1
    for session in sessions:  # the first grants its place to the waiter, which never looks
        session.lease.close()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_waiter_that_leaves_what_it_was_granted_leaks_nothing(pool_of: PoolOf) -> None:
    with pool_of(max_size=1) as pool:
        for _ in range(3):
            asyncio.run(leave_what_was_granted(pool))
        assert eventually(lambda: pool.stats()["live"] == len(pool.services()) <= 1)
        with pool.acquire(Sessions, timeout=10) as again:
            assert again.step("a", 1) == [1]


def test_a_null_pool_shares_nothing() -> None:
    with (
        forebay.NullPool(max_size=2) as pool,
        pool.acquire(Sessions) as one,
        pool.acquire(Sessions) as other,
    ):
        assert one.lease.pid != other.lease.pid


def test_joins_count_as_uses(pool_of: PoolOf) -> None:
    with (
        pool_of(max_size=2, max_uses=2) as pool,
        pool.acquire(Sessions) as first,
        pool.acquire(Sessions) as second,
        pool.acquire(Sessions) as third,
    ):
        assert first.lease.pid == second.lease.pid != third.lease.pid


def test_a_shared_service_that_is_out_for_too_long_is_reported_once_with_its_place(
    pool_of: PoolOf, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease of it that is never ended would keep the service for ever, and nobody would know."""
    with (
        pool_of(max_size=2, leak_after=0.02) as pool,
        caplog.at_level(logging.WARNING),
        pool.acquire(Sessions) as leaked,
    ):
        for _ in range(2):
            threading.Event().wait(0.05)
            with pool.acquire(Sessions) as other:
                assert other.lease.pid == leaked.lease.pid
        [report] = [record.getMessage() for record in caplog.records]
        assert f"(process {leaked.lease.pid}) acquired at {__file__}:" in report
        assert pool.stats()["leaks"] == 1


def test_an_interrupt_while_the_last_lease_is_given_back_ends_the_service(
    pool_of: PoolOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be lent to nobody for ever, and whoever was to join it would wait for ever."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pool_of(max_size=1) as pool:
        first, second = pool.acquire(Sessions), pool.acquire(Sessions)
        pid = first.__enter__().lease.pid
        second.__enter__()
        monkeypatch.setattr(PythonRecord, "begin_reset", interrupted)
        first.__exit__()
        with pytest.raises(KeyboardInterrupt):
            second.__exit__()
        monkeypatch.undo()
        with pool.acquire(Sessions, timeout=10) as session:
            assert session.lease.pid != pid
            assert session.step("a", 1) == [1]
        assert eventually(lambda: not alive(pid))


def test_a_grant_that_nobody_takes_and_that_is_the_last_lease_ends_the_service() -> None:
    """The others have left the reset to it: the next holder would find what they left."""
    with forebay.ServicePool(max_size=1) as pool:
        acquire = pool.acquire(Sessions)
        pid = acquire.__enter__().lease.pid
        borrow = OwnBorrow(pool, acquire._kind, 1.0, THREADS)
        granted = pool.core.ask(acquire._kind.key, THREADS)
        assert granted[0] == JOINED
        acquire.__exit__()
        borrow._hand_on(granted)
        with pool.acquire(Sessions, timeout=10) as session:
            assert session.lease.pid != pid
        assert pool.stats()["resets"] == 1
