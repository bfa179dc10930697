"""Several leases of one service of a shared pool: of one program, and beside other programs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.pool.lend.wait import THREADS, Deadline
from forebay.pool.shared.link import LENT
from tests.pool.processes import alive, eventually
from tests.pool.services import Echo, Sessions
from tests.pool.shared.lender import Lending, Program


@pytest.fixture
def lending(path: Path) -> Iterator[Lending]:
    """A lender of one service."""
    with Lending(path, "--max-size", "1") as made:
        yield made


@pytest.fixture
def pool(lending: Lending) -> Iterator[forebay.SharedPool]:
    with forebay.SharedPool(lending.path) as made:
        yield made


@contextlib.contextmanager
def sessions(pool: forebay.SharedPool, count: int) -> Iterator[list[Any]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(pool.acquire(Sessions, timeout=10)) for _ in range(count)]


def test_threads_hold_one_service_at_once(pool: forebay.SharedPool) -> None:
    """Each would wait for the other although the service keeps them apart."""
    together = threading.Barrier(3, timeout=10)

    def episode(name: str) -> tuple[int, list[int]]:
        with pool.acquire(Sessions, timeout=10) as session:
            together.wait()
            answer = session.step(name, 1)
            together.wait()
            return session.lease.pid, answer

    with ThreadPoolExecutor(3) as executor:
        told = list(executor.map(episode, "abc"))
    assert len({pid for pid, _ in told}) == 1
    assert [answer for _, answer in told] == [[1], [1], [1]]


def test_programs_use_a_shared_service_one_after_the_other(
    pool: forebay.SharedPool, path: Path
) -> None:
    """Two programs cannot read one socket at the same time."""
    with forebay.SharedPool(path) as other:
        with sessions(pool, 2) as (one, _):
            pid = one.lease.pid
            with pytest.raises(forebay.DeadlineError), other.acquire(Sessions, timeout=0.05):
                pass
        with sessions(other, 3) as held:
            assert {session.lease.pid for session in held} == {pid}
            assert held[0].count() == 1, "it was reset once, after the last lease"


def test_who_waits_in_another_program_is_not_overtaken_for_ever(
    pool: forebay.SharedPool, path: Path
) -> None:
    """A busy program would keep a service for itself by joining it before its last lease ends."""
    with forebay.SharedPool(path) as other, ThreadPoolExecutor(1) as executor:
        with sessions(pool, 2):
            waiting = executor.submit(other.acquire(Sessions, timeout=10).__enter__)
            assert eventually(lambda: pool.stats()["waiters"] == 1)
            with pytest.raises(forebay.DeadlineError), pool.acquire(Sessions, timeout=0.05):
                pass
        assert waiting.result(10).step("a", 1) == [1]


def test_who_waits_joins_once_nobody_else_waits(pool: forebay.SharedPool, path: Path) -> None:
    """Of two that wait the first gives up: the second needs no room, and would wait for it."""
    with (
        forebay.SharedPool(path) as other,
        ThreadPoolExecutor(2) as executor,
        sessions(pool, 1) as (held,),
    ):
        late = executor.submit(other.acquire(Echo, timeout=0.5).__enter__)
        assert eventually(lambda: pool.stats()["waiters"] == 1)
        joining = executor.submit(pool.acquire(Sessions, timeout=10).__enter__)
        assert eventually(lambda: pool.stats()["waiters"] == 2)
        with pytest.raises(forebay.DeadlineError):
            late.result(10)
        joined = joining.result(5)
        assert joined.lease.pid == held.lease.pid
        joined.lease.close()


def test_a_lease_that_shares_is_within_the_limit_of_its_program(path: Path) -> None:
    """The limit is of services, and a further lease takes none."""
    with (
        Lending(path, "--max-size", "2", "--max-leases", "1"),
        forebay.SharedPool(path) as pool,
        sessions(pool, 3) as held,
    ):
        stats = pool.stats()
        assert (stats["held"], stats["leased"], stats["live"]) == (1, 1, 1)
        assert len({session.lease.pid for session in held}) == 1
        with pytest.raises(forebay.DeadlineError), pool.acquire(Sessions, timeout=0.05):
            pass


def test_what_waits_because_of_its_programs_limit_is_not_overtaken_for_ever(path: Path) -> None:
    """A program that goes on sharing one service would never get the other one it waits for."""
    with (
        Lending(path, "--max-size", "2", "--max-leases", "1"),
        forebay.SharedPool(path) as pool,
        ThreadPoolExecutor(1) as executor,
    ):
        with sessions(pool, 2):
            waiting = executor.submit(pool.acquire(Echo, timeout=10).__enter__)
            assert eventually(lambda: pool.stats()["waiters"] == 1)
            with pytest.raises(forebay.DeadlineError), pool.acquire(Sessions, timeout=0.05):
                pass
        assert waiting.result(10).echo(1) == 1


def test_who_could_share_is_not_forgotten_once_the_one_before_is_served(path: Path) -> None:
    """What its program gave back was lent at once, and nothing else would come to wake it."""
    with (
        Lending(path, "--max-size", "2", "--max-leases", "2"),
        forebay.SharedPool(path) as pool,
        ThreadPoolExecutor(2) as executor,
        sessions(pool, 1) as (kept,),
    ):
        with pool.acquire(Echo):
            first = executor.submit(pool.acquire(Echo, timeout=10).__enter__)
            assert eventually(lambda: pool.stats()["waiters"] == 1)
            second = executor.submit(pool.acquire(Sessions, timeout=10).__enter__)
            assert eventually(lambda: pool.stats()["waiters"] == 2)
        assert first.result(5).echo(1) == 1
        assert second.result(5).lease.pid == kept.lease.pid
        first.result().lease.close()
        second.result().lease.close()


def test_what_is_drained_takes_no_further_lease(path: Path) -> None:
    """A service that is always joined would never be given back, and live on with its old code."""
    with (
        Lending(path, "--max-size", "2"),
        forebay.SharedPool(path) as pool,
        sessions(pool, 2) as (kept, _),
    ):
        assert pool.drain() == (0, 1)
        with sessions(pool, 1) as (other,):
            assert other.lease.pid != kept.lease.pid
        assert kept.step("a", 1) == [1]


def test_leases_that_share_are_counted_and_told(pool: forebay.SharedPool) -> None:
    """Who reads the events of a pool would take a service with many users for an unused one."""
    with pool.events() as events:
        with sessions(pool, 3):
            assert len(pool.services()) == 1
            assert pool.services()[0]["name"] == "Sessions"
        seen = [events.next(5) for _ in range(5)]
    assert [event.what for event in seen] == ["start", "lease", "lease", "lease", "reset"]
    assert pool.stats()["leases"] == 3


def test_a_copy_and_the_lines_of_a_shared_service(pool: forebay.SharedPool) -> None:
    """Features of a lease are those of each of its leases."""
    with sessions(pool, 2) as (one, other):
        one.step("a", 1)
        with other.lease.fork(2) as copies:
            assert [copy.step("a", 2) for copy in copies] == [[1, 2], [1, 2]]
        assert other.step("a", 3) == [1, 3]
        assert one.lease.directory == other.lease.directory
        assert other.lease.stderr == one.lease.stderr == ""


def test_a_killed_program_leaves_nothing_of_a_service_that_it_shared(
    pool: forebay.SharedPool, path: Path
) -> None:
    """Its leases would keep the service for a program that is gone."""
    with Program(path, "share", 2) as program:
        pid, second = program.told()
        assert pid == second
        program.kill()
    assert eventually(lambda: not alive(pid))
    with sessions(pool, 3) as held:
        assert held[0].step("a", 1) == [1]


def test_all_who_share_a_service_are_told_of_the_lenders_end(path: Path) -> None:
    """The first to leave would close the connection of the others."""
    with forebay.SharedPool(path) as pool:
        with Lending(path) as first, sessions(pool, 3) as held:
            pid = held[0].lease.pid
            first.end(signal.SIGKILL)
            assert eventually(lambda: not alive(pid))
            for session in held:
                with pytest.raises(forebay.BrokenError):
                    session.step("a", 1)
                session.lease.close()
        with Lending(path), sessions(pool, 2) as (one, other):
            assert one.lease.pid == other.lease.pid


def test_a_lease_that_is_granted_as_the_last_one_ends_is_asked_for_again(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """Its holder would call a service that another program has by then."""
    with sessions(pool, 1) as (session,):
        core, (key,) = pool.link().core, pool.link().keys.values()
        lending.stop()
        ticket = core.take(key, 0.0, THREADS)
        assert isinstance(ticket, int)
        session.lease.close()
        lending.send(signal.SIGCONT)
        answer = core.wait(ticket, 10.0)
    assert answer is not None
    assert answer[0] == LENT
    assert answer[1].generation == session.lease.generation + 1
    core.discard(answer[1])
    assert eventually(lambda: pool.stats()["leased"] == 0)


def test_a_caller_that_is_interrupted_as_the_last_one_keeps_nothing(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """Nobody else closes the connection of a service that is ended before its caller has it."""
    with sessions(pool, 1) as (session,):
        link = pool.link()
        (key,) = link.keys.values()
        lending.stop()
        ticket = link.core.take(key, 0.0, THREADS)
        assert isinstance(ticket, int)
        asking = link.ask(ticket, Deadline(10.0))
        next(asking)
        lending.send(signal.SIGCONT)
        assert pool.stats()["leases"] == 2, "its answer has come before this one"
        session.lease.close()
        with pytest.raises(KeyboardInterrupt):
            asking.throw(KeyboardInterrupt())
    assert link._records == {}
    assert eventually(lambda: pool.stats()["live"] == 0)


async def leave_what_is_granted_later(lending: Lending, pool: forebay.SharedPool) -> None:
    async with pool.acquire(Sessions) as kept:
        lending.stop()
        joining = asyncio.create_task(pool.acquire(Sessions).__aenter__())
        await asyncio.sleep(0.05)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        lending.send(signal.SIGCONT)
        async with pool.acquire(Sessions) as two, pool.acquire(Sessions) as three:
            assert {two.lease.pid, three.lease.pid} == {kept.lease.pid}


def test_a_caller_that_leaves_before_its_grant_takes_no_place(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """A service would be full of leases that nobody has."""
    for _ in range(3):
        asyncio.run(leave_what_is_granted_later(lending, pool))
    stats = pool.stats()
    assert (stats["leased"], stats["starts"], stats["resets"]) == (0, 1, 3)
