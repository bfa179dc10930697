"""The shared pool while programs, services, keeper and lender are killed or stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.pool import Lender
from forebay.pool.lend.wait import THREADS
from forebay.pool.shared.link import START
from tests.namespaces import needs_namespace, unshared
from tests.pool.processes import alive, descendants, eventually, parent
from tests.pool.services import Echo, Notes, Slow
from tests.pool.shared.lender import Lending, Program

PROGRAMS = 4
CYCLES = 1000


@pytest.fixture
def pool(lending: Lending) -> Iterator[forebay.SharedPool]:
    with forebay.SharedPool(lending.path) as made:
        yield made


def wait_for_programs(pool: forebay.SharedPool, count: int) -> None:
    assert eventually(lambda: pool.stats()["programs"] == count), pool.stats()


def test_a_killed_holder_takes_its_service_along(lending: Lending) -> None:
    """What it left half done would be found by the next program."""
    with Program(lending.path, "hold") as holder:
        pid = holder.told()
        holder.kill()
        assert eventually(lambda: not alive(pid))
    with Program(lending.path, "use") as next_one:
        assert next_one.told()[1] != pid


def test_a_killed_waiter_makes_room_for_the_next(path: Path) -> None:
    """Its turn would be waited for by everybody behind it."""
    with Lending(path, "--max-size", "1") as lending, forebay.SharedPool(path) as pool:
        with Program(path, "hold") as holder:
            pid = holder.told()
            with Program(path, "wait") as waiter:
                waiter.told()
                assert eventually(lambda: pool.stats()["waiters"] == 1)
            assert eventually(lambda: pool.stats()["waiters"] == 0)
            holder.go_on()
            assert holder.told() == "released"
            with Program(path, "use") as next_one:
                assert next_one.told()[1] == pid
        assert lending.process.poll() is None


def test_a_program_killed_in_a_start_leaves_nothing(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """Its start would keep a place in the pool for as long as the deadline is."""
    with Program(lending.path, "start") as starter:
        assert starter.told() == "starting"
        starter.kill()
    assert eventually(lambda: pool.services() == [])
    with pool.acquire(Echo.spec(1)), pool.acquire(Echo.spec(2)):
        assert len(pool.services()) == 2


def test_a_program_that_leaves_a_forked_child_is_known_to_be_gone(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """A child forked by a library in C holds every descriptor, the lender's socket as well."""
    with Program(lending.path, "fork") as program:
        child, service = program.told()
        try:
            program.kill()
            assert eventually(lambda: not alive(service))
            assert alive(child)
            wait_for_programs(pool, 1)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_service_killed_while_idle_is_replaced_in_the_same_call(
    pool: forebay.SharedPool,
) -> None:
    """Its next holder would get a broken connection."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid != pid
    assert pool.stats()["deaths"] == {"signal": 1}


def test_a_death_and_a_question_that_come_together_are_told_apart(path: Path) -> None:
    """The new service has the place of the dead one, whose end must not be taken for its own."""
    with Lending(path, "--max-size", "1") as lending, forebay.SharedPool(path) as pool:
        with pool.acquire(Echo) as echo:
            pid = echo.lease.pid
        core, (key,) = pool.link().core, pool.link().keys.values()
        lending.stop()
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: not alive(pid))
        ticket = core.take(key, 0.0, THREADS)
        assert isinstance(ticket, int)
        lending.send(signal.SIGCONT)
        answer = core.wait(ticket, 5.0)
        assert answer is not None
        assert answer[0] == START, answer
        os.close(answer[2])
        core.discard(answer[1])
        with pool.acquire(Echo) as echo:
            assert echo.echo(1) == 1


def test_a_call_that_timed_out_ends_its_service(pool: forebay.SharedPool) -> None:
    """Its answer would come to the next holder, in whichever program."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        with pytest.raises(forebay.DeadlineError):
            echo.lease.options(timeout=0.05).hang()
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid != pid


def test_a_killed_keeper_is_replaced(pool: forebay.SharedPool) -> None:
    """The lender would lend processes that nobody watches."""
    with pool.acquire(Echo) as echo:
        keeper, pid = parent(echo.lease.pid), echo.lease.pid
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(forebay.DiedError) as caught:
            echo.hang()
    assert caught.value.cause == "keeper_lost"
    with pool.acquire(Echo, timeout=20) as echo:
        assert parent(echo.lease.pid) != keeper
        assert echo.lease.pid != pid


def test_a_killed_lender_leaves_nothing_and_another_takes_its_place(path: Path) -> None:
    """Services would outlive everybody, and the socket would be in the way of the next lender."""
    with forebay.SharedPool(path) as pool:
        with Lending(path) as first:
            with pool.acquire(Echo) as echo:
                family = [echo.lease.pid, *descendants(first.pid)]
                assert first.end(signal.SIGKILL) == -signal.SIGKILL
                assert eventually(lambda: not any(map(alive, family)))
                with pytest.raises(forebay.BrokenError):
                    echo.echo(1)
            with pytest.raises(forebay.BrokenError, match="start one: forebay serve"):
                pool.acquire(Echo).__enter__()
        with Lending(path), pool.acquire(Echo) as echo:
            assert echo.echo(2) == 2
    assert list(path.parent.iterdir()) == []


def test_a_lease_of_a_lender_that_is_gone_breaks_beside_one_of_the_next(path: Path) -> None:
    """Its holder would be told that it had closed the pool itself."""
    with forebay.SharedPool(path) as pool, Lending(path) as first, pool.acquire(Echo) as old:
        first.end(signal.SIGKILL)
        assert eventually(lambda: not alive(old.lease.pid))
        with Lending(path), pool.acquire(Echo) as new:
            with pytest.raises(forebay.BrokenError):
                old.echo(1)
            assert new.echo(2) == 2


def test_who_waits_is_told_of_the_lenders_end(path: Path) -> None:
    """A thread and a loop would wait for ever."""
    told: list[str] = []

    def ask() -> None:
        try:
            pool.acquire(Echo, timeout=None).__enter__()
        except forebay.BrokenError as error:
            told.append(str(error))

    async def aask() -> None:
        with pytest.raises(forebay.BrokenError, match="forebay serve"):
            await pool.acquire(Echo, timeout=None).__aenter__()

    with Lending(path, "--max-size", "1") as lending, forebay.SharedPool(path) as pool:
        with pool.acquire(Echo):
            waiters = [threading.Thread(target=ask) for _ in range(3)]
            waiters.append(threading.Thread(target=asyncio.run, args=(aask(),)))
            for waiter in waiters:
                waiter.start()
            assert eventually(lambda: pool.stats()["waiters"] == 4)
            lending.end(signal.SIGKILL)
            for waiter in waiters:
                waiter.join(10)
        assert len(told) == 3
        assert all(re.search("start one: forebay serve", text) for text in told)


def test_a_stopped_lender_does_not_break_a_callers_timeout(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """A caller would wait for as long as the lender is stopped; calls go on without it."""
    with pool.acquire(Echo) as echo:
        lending.stop()
        assert echo.echo(1) == 1
        begun = time.monotonic()
        with pytest.raises(forebay.DeadlineError, match="the lender does not answer"):
            pool.acquire(Echo.spec(2), timeout=0.2).__enter__()
        assert time.monotonic() - begun < 2

        async def on_a_loop() -> None:
            with pytest.raises(forebay.DeadlineError):
                await pool.acquire(Echo, timeout=0.2).__aenter__()

        asyncio.run(on_a_loop())
    lending.send(signal.SIGCONT)
    with pool.acquire(Echo, timeout=10) as echo:
        assert echo.echo(3) == 3
    assert pool.stats()["held"] == 0


def test_a_lender_that_is_slow_gives_what_is_idle_without_a_wait(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """`timeout=0` failed by chance: the lender may not run at the moment at which it is asked."""
    with pool.acquire(Echo):
        pass
    lending.stop()
    slow = threading.Timer(0.05, lending.send, [signal.SIGCONT])
    slow.start()
    with pool.acquire(Echo, timeout=0) as echo:
        assert echo.echo(1) == 1
    slow.join()


def test_much_that_is_said_to_a_stopped_lender_is_heard_when_it_goes_on(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """Its socket is full by then: a release that did not fit would be lost, and its service."""
    with pool.acquire(Notes) as notes:
        assert notes.note("x") == 1
        lending.stop()
        core = pool.link().core
        tickets = [core.take(0, 0.0, THREADS) for _ in range(400)]  # asked, and not waited for
        assert all(isinstance(ticket, int) for ticket in tickets)
    lending.send(signal.SIGCONT)
    with forebay.SharedPool(lending.path) as other:
        assert eventually(lambda: pool.stats()["held"] <= 2)
        pool.close()
        with other.acquire(Notes, timeout=10) as notes:
            assert notes.read() == []


def test_programs_by_the_thousand_cycles_leave_no_descriptor(path: Path) -> None:
    """A lender that runs for weeks would run out of them; and no service is in two hands."""
    with Lending(path, "--max-size", "2") as lending, forebay.SharedPool(path) as pool:

        def beside_services() -> int:
            return lending.descriptors() - 2 * len(pool.services())

        with Program(path, "cycle", 20) as warm:
            warm.told()
            warm.process.wait()
        wait_for_programs(pool, 1)
        before = beside_services()
        programs = [Program(path, "cycle", CYCLES) for _ in range(PROGRAMS)]
        for program in programs:
            with program:
                assert program.told() <= 2  # the other service's socket and process, seen late
                assert program.process.wait(30) == 0
        wait_for_programs(pool, 1)
        assert beside_services() == before
        assert pool.stats()["leases"] >= PROGRAMS * CYCLES


@pytest.mark.slow
def test_killed_programs_leave_a_pool_that_works(path: Path) -> None:
    """Whatever a program was doing when it was killed, the others go on."""
    with Lending(path, "--max-size", "2") as lending, forebay.SharedPool(path) as pool:
        for number in range(30):
            with Program(path, "cycle", 1_000_000) as program:
                assert eventually(lambda: pool.stats()["programs"] == 2)
                wanted = pool.stats()["leases"] + number
                assert eventually(lambda wanted=wanted: pool.stats()["leases"] > wanted)  # type: ignore[misc]
                program.kill()
        wait_for_programs(pool, 1)
        assert eventually(lambda: all(not one["holder"] for one in pool.services()))
        with pool.acquire(Echo, timeout=10) as echo:
            assert echo.echo(1) == 1
        assert lending.process.poll() is None


@pytest.mark.needs("unshare")
@needs_namespace
def test_programs_outside_of_the_lenders_container_are_served(path: Path) -> None:
    """One of them must not make the lender deaf for everybody after it."""
    with Lending(path, within=unshared):
        for _ in range(2):
            with Program(path, "use") as program:
                assert program.told()[1] > 0


def test_a_lender_without_descriptors_hears_programs_once_it_has_some(path: Path) -> None:
    """Who came while there were none is served later, though no program is there to leave."""
    with Lending(path) as lending:
        before = resource.prlimit(lending.pid, resource.RLIMIT_NOFILE)
        watched = lending.watched()
        resource.prlimit(lending.pid, resource.RLIMIT_NOFILE, (lending.next_free(), before[1]))
        with Program(path, "use") as program:
            assert eventually(lambda: lending.watched() < watched)  # the listener among them
            resource.prlimit(lending.pid, resource.RLIMIT_NOFILE, before)
            assert program.told()[1] > 0


@contextlib.contextmanager
def without_descriptors(lending: Lending) -> Iterator[None]:
    """Let the lender open nothing meanwhile."""
    before = resource.prlimit(lending.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(lending.pid, resource.RLIMIT_NOFILE, (lending.next_free(), before[1]))
    try:
        yield
    finally:
        resource.prlimit(lending.pid, resource.RLIMIT_NOFILE, before)


WANTS_MORE = r"RLIMIT_NOFILE of forebay serve is \d+, .*ulimit -n \d+"


def refused(pool: forebay.SharedPool, spec: Any = Echo) -> None:
    """Ask for a service, and be told that the lender has no descriptor for it."""
    with pytest.raises(forebay.LimitError, match=WANTS_MORE), pool.acquire(spec, timeout=10):
        pass


@pytest.mark.parametrize("waits", [False, True])
def test_a_lender_without_descriptors_refuses_one_lease_and_goes_on(
    path: Path, waits: bool
) -> None:
    """The place of the service was lost, and for one who waited every service was ended."""
    with (
        Lending(path, "--max-size", "1") as lending,
        forebay.SharedPool(path) as one,
        forebay.SharedPool(path) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        other.stats()  # it is connected
        with contextlib.ExitStack() as held:
            echo = held.enter_context(one.acquire(Echo))
            assert echo.echo(1) == 1
            if waits:
                asked = threads.submit(refused, other)
                assert eventually(lambda: one.stats()["waiters"] == 1)
            else:
                held.close()
            with without_descriptors(lending):
                held.close()
                if waits:
                    asked.result(20)
                else:
                    refused(other)
        for pool in (one, other):
            with pool.acquire(Echo, timeout=10) as echo:
                assert echo.echo(2) == 2
        assert lending.process.poll() is None


def test_a_start_that_is_refused_makes_room_for_the_next(path: Path) -> None:
    """What the same program asked for meanwhile waited for a release that never came."""
    with (
        Lending(path, "--max-size", "3", "--max-leases", "1") as lending,
        forebay.SharedPool(path) as pool,
        ThreadPoolExecutor(4) as threads,
    ):
        with pool.acquire(Echo) as echo:  # so that a keeper runs
            assert echo.echo(1) == 1
        with without_descriptors(lending):
            starts = [threads.submit(refused, pool, Echo.spec(number)) for number in range(1, 5)]
            for start in starts:
                start.result(20)
        with pool.acquire(Echo.spec(9), timeout=10) as echo:
            assert echo.add(1) == 10


def test_a_service_whose_process_cannot_be_told_of_is_refused(
    lending: Lending, pool: forebay.SharedPool
) -> None:
    """It was ready, and every service of every program was ended."""
    with pool.acquire(Echo) as echo, ThreadPoolExecutor(1) as threads:
        before = lending.processes()
        started = threads.submit(refused, pool, Slow.spec(2.0))
        assert eventually(lambda: bool(lending.processes() - before))
        with without_descriptors(lending):
            started.result(20)
        assert echo.echo(1) == 1
    with pool.acquire(Slow.spec(0.0), timeout=10) as slow:
        assert slow.echo(2) == 2


@pytest.mark.parametrize("lock", ["kept", "removed"])
def test_a_socket_that_was_removed_is_made_again(lending: Lending, path: Path, lock: str) -> None:
    """A clean-up of the runtime directory left a lender that no new program found."""
    with forebay.SharedPool(path) as before, before.acquire(Echo) as held:
        path.unlink()
        if lock == "removed":
            path.with_name(f"{path.name}.lock").unlink()
            path.parent.rmdir()
        assert eventually(path.exists, 10)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with forebay.SharedPool(path) as after:
            assert after.stats()["pid"] == lending.pid
            with after.acquire(Echo) as echo:
                assert echo.echo("new") == "new"
        assert held.echo("old") == "old"
    # It is still the only one there, and takes everything with it at its end.
    with pytest.raises(forebay.ConfigError, match=f"process {lending.pid} already lends"):
        Lender(path)
    lending.end()
    assert not path.exists()
    assert list(path.parent.iterdir()) == []
