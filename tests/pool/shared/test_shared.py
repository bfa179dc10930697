"""One pool for several programs: who gets which service, and what they are told."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.other_user import NOBODY, let_others_reach, needs_root
from tests.pool.processes import eventually
from tests.pool.scripts import ECHO, python
from tests.pool.services import Echo, Ledger, Notes, Once, Owned, Slow, Unmakeable
from tests.pool.shared.lender import Lending, Program


@pytest.fixture
def one(lending: Lending) -> Iterator[forebay.SharedPool]:
    """A program, as far as the lender knows."""
    with forebay.SharedPool(lending.path) as made:
        yield made


@pytest.fixture
def other(lending: Lending) -> Iterator[forebay.SharedPool]:
    """Another one."""
    with forebay.SharedPool(lending.path) as made:
        yield made


def settled(pool: forebay.SharedPool, state: str) -> list[dict[str, Any]]:
    """The services in a state, once there is one."""
    deadline = time.monotonic() + 5
    while not (found := [each for each in pool.services() if each["state"] == state]):
        assert time.monotonic() < deadline, pool.services()
    return found


def test_programs_use_one_warm_service(lending: Lending) -> None:
    """Without it, each program would pay for the start that another one has paid for."""
    with Program(lending.path, "use") as first:
        echoed, pid = first.told()
        assert echoed == first.pid
        first.process.wait()
    with Program(lending.path, "use") as second:
        assert second.told() == [second.pid, pid]


def test_what_one_program_left_is_reset_before_another_gets_it(path: Path) -> None:
    """Whoever borrows next would read what the last holder left."""
    pids = set()
    with Lending(path, "--max-size", "1"):
        for text in ("secret", "mine", "last"):
            with Program(path, "note", text) as program:
                before, pid = program.told()
                assert before == []
                pids.add(pid)
                program.process.wait()
    assert len(pids) == 1


def test_a_reset_that_fails_is_met_with_another_service(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """The answer that says so is read by the next holder, in another program."""
    with one.acquire(Notes) as notes:
        notes.next_reset("fail")
        pid = notes.lease.pid
    with other.acquire(Notes) as notes:
        assert notes.lease.pid != pid


def test_a_service_that_hangs_in_its_reset_goes_to_nobody(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """The next program would wait for it for ever."""
    with one.acquire(Notes) as notes:
        notes.next_reset("hang")
        pid = notes.lease.pid
    with other.acquire(Notes, timeout=10) as notes:
        assert notes.lease.pid != pid


def test_a_start_that_a_program_gave_up_goes_to_the_next(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """The half of the start that is done would be done again."""
    spec = Slow.spec(0.6)
    with pytest.raises(forebay.DeadlineError), one.acquire(spec, timeout=0.3):
        pass
    with other.acquire(spec, timeout=10) as slow:
        assert slow.echo(1) == 1
    assert other.stats()["starts"] == 1
    with one.acquire(spec) as slow:
        assert slow.echo(2) == 2


def test_a_full_pool_says_who_holds_what(lending: Lending, one: forebay.SharedPool) -> None:
    """Whoever is kept waiting learns which program to look at."""
    with Program(lending.path, "hold") as first, Program(lending.path, "hold") as second:
        first.told(), second.told()
        with pytest.raises(forebay.DeadlineError) as caught, one.acquire(Echo, timeout=0.05):
            pass
    message = str(caught.value)
    assert f"process {first.pid} holds 1 (for " in message
    assert f"process {second.pid} holds 1 (for " in message
    assert caught.value.timeout == 0.05


def test_the_first_who_asked_is_the_first_to_get(path: Path) -> None:
    """A program that asks often would starve one that asks once."""
    order: list[str] = []
    with (
        Lending(path, "--max-size", "1"),
        forebay.SharedPool(path) as holder,
        forebay.SharedPool(path) as first,
        forebay.SharedPool(path) as second,
    ):

        def ask(pool: forebay.SharedPool, name: str) -> None:
            with pool.acquire(Echo):
                order.append(name)

        with holder.acquire(Echo):
            threads = []
            for number, (pool, name) in enumerate(((first, "first"), (second, "second")), 1):
                threads.append(threading.Thread(target=ask, args=(pool, name)))
                threads[-1].start()
                while holder.stats()["waiters"] < number:
                    pass
        for thread in threads:
            thread.join()
    assert order == ["first", "second"]


def test_a_program_holds_no_more_than_its_limit(path: Path) -> None:
    """One program would take everything; what it asks for above its limit waits for its own."""
    with (
        Lending(path, "--max-size", "3", "--max-leases", "1"),
        forebay.SharedPool(path) as greedy,
        forebay.SharedPool(path) as modest,
    ):
        with greedy.acquire(Echo):
            with pytest.raises(forebay.DeadlineError, match="holds 1 of at most 1"):
                greedy.acquire(Echo, timeout=0.05).__enter__()
            with modest.acquire(Echo, timeout=5) as echo:
                assert echo.echo(1) == 1
            got = threading.Event()

            def ask() -> None:
                with greedy.acquire(Echo):
                    got.set()

            asking = threading.Thread(target=ask)
            asking.start()
            while not greedy.stats()["waiters"]:
                pass
            assert not got.is_set()
        asking.join(5)
        assert got.is_set()


def test_too_many_waiters_of_one_program_are_refused(path: Path) -> None:
    """A program gone wild would fill the lender's memory; the error names the limit."""
    with (
        Lending(path, "--max-size", "1", "--max-waiters", "1"),
        forebay.SharedPool(path) as pool,
        pool.acquire(Echo),
    ):

        def give_up() -> None:
            with pytest.raises(forebay.DeadlineError):
                pool.acquire(Echo, timeout=2.0).__enter__()

        waiting = threading.Thread(target=give_up)
        waiting.start()
        while not pool.stats()["waiters"]:
            pass
        with pytest.raises(forebay.LimitError, match="max_waiters is 1, 2 asked for") as caught:
            pool.acquire(Echo).__enter__()
        waiting.join()
    assert (caught.value.limit, caught.value.value) == (1, 2)


async def use_on_a_loop(pool: forebay.SharedPool) -> tuple[int, int]:
    async with pool.acquire(Echo) as echo:
        first = echo.lease.pid
        assert await echo.echo("a") == "a"
    async with pool.acquire(Echo) as echo:
        assert await echo.echo("b") == "b"
        return first, echo.lease.pid


def test_loops_and_threads_share_a_service(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """A service that a loop used would be of no use to a thread, in this program or another."""
    first, second = asyncio.run(use_on_a_loop(one))
    assert first == second
    for pool in (one, other):
        with pool.acquire(Echo) as echo:
            assert echo.lease.pid == first


def test_a_cancelled_caller_costs_nothing(path: Path) -> None:
    """A service would be lost with each caller that gave up."""
    with Lending(path, "--max-size", "1"), forebay.SharedPool(path) as pool:

        async def give_up() -> None:
            async with pool.acquire(Echo):
                asking = asyncio.ensure_future(pool.acquire(Echo).__aenter__())
                while not pool.stats()["waiters"]:  # noqa: ASYNC110 (another process knows it)
                    await asyncio.sleep(0)
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking

        asyncio.run(give_up())
        assert pool.stats()["waiters"] == 0
        with pool.acquire(Echo, timeout=5) as echo:
            assert echo.echo(1) == 1
        assert pool.stats()["starts"] == 1


def test_a_constructor_that_raises_is_told_to_who_asked(one: forebay.SharedPool) -> None:
    """A caller would look for the fault of its class in the lender."""
    with pytest.raises(LookupError, match="no such thing"):
        one.acquire(Unmakeable).__enter__()


def test_a_death_is_told_with_its_cause(one: forebay.SharedPool, other: forebay.SharedPool) -> None:
    """A program that borrows learns as much as the owner of a pool does."""
    with one.acquire(Echo) as echo, pytest.raises(forebay.DiedError) as caught:
        echo.die(11)
    assert (caught.value.cause, caught.value.signal) == ("signal", 11)
    assert "about to die" in caught.value.stderr_tail
    with other.acquire(Echo) as echo:
        assert echo.echo(1) == 1


def test_what_a_service_wrote_can_be_read(one: forebay.SharedPool) -> None:
    """A print in a service would be lost to its caller."""
    with one.acquire(Echo) as echo:
        echo.say("hello")
        assert echo.lease.stderr == "hello\n"


def test_a_lease_that_has_ended_is_stale(one: forebay.SharedPool) -> None:
    """It would reach a service that another program holds by now."""
    with one.acquire(Echo) as echo:
        pass
    with pytest.raises(forebay.StaleError):
        echo.echo(1)


def test_a_service_that_is_never_reused_is_new_each_time(one: forebay.SharedPool) -> None:
    """Its class says so, and the lender must not know better."""
    pids = set()
    for _ in range(3):
        with one.acquire(Once) as once:
            pids.add(once.lease.pid)
    assert len(pids) == 3


def test_a_program_is_lent_to_several(
    one: forebay.SharedPool, other: forebay.SharedPool, tmp_path: Path
) -> None:
    """Any executable is shared, not only a class."""
    command = python(tmp_path, ECHO)
    pids = set()
    for pool, text in ((one, b"first"), (other, b"second"), (one, b"third")):
        with pool.acquire(command) as backend:
            backend.socket.sendall(text)
            assert backend.socket.recv(100) == text
            pids.add(backend.lease.pid)
    assert len(pids) == 1


def test_a_full_pool_ends_an_idle_service_of_another_kind(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """One program's idle services would lock the others out."""
    with one.acquire(Echo.spec(1)), one.acquire(Echo.spec(2)):
        pass
    with other.acquire(Echo.spec(3), timeout=10) as echo:
        assert echo.add(1) == 4


def test_a_stateful_service_is_there_for_programs_that_come_later(path: Path) -> None:
    """The lender, which knows no classes, is told that one holds state."""
    with (
        Lending(path, "--max-size", "1", "--idle-timeout", "0.1s") as lending,
        forebay.SharedPool(lending.path) as pool,
    ):
        with pool.acquire(Ledger) as ledger:
            ledger.put("a", 1)
        with pytest.raises(forebay.DeadlineError), pool.acquire(Echo, timeout=0.5):
            pass  # for longer than an idle one is kept
        with pool.acquire(Ledger) as ledger:
            assert ledger.get("a") == 1


def test_drain_ends_what_is_idle_now_and_the_rest_when_it_comes_back(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """Changed code would be served from old processes for as long as they are used."""
    with one.acquire(Echo) as held:
        with one.acquire(Echo) as idle:
            idle_pid = idle.lease.pid
        assert other.drain("Notes") == (0, 0)
        assert other.drain("Echo") == (1, 1)
        assert held.echo(1) == 1
        held_pid = held.lease.pid
    with other.acquire(Echo) as echo:
        assert echo.lease.pid not in (idle_pid, held_pid)


def test_services_are_listed_with_their_holders(
    lending: Lending, one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """Who looks for a service that is never given back finds its holder."""
    with one.acquire(Echo) as echo:
        (row,) = other.services()
        assert (row["pid"], row["name"], row["state"]) == (echo.lease.pid, "Echo", "leased")
        assert row["holder"] == os.getpid()
    assert settled(other, "idle")[0]["holder"] == 0
    stats = other.stats()
    assert (stats["pid"], stats["programs"], stats["leases"]) == (lending.pid, 2, 1)


def witness(file: str) -> str:
    """Leave a note of the process that unpickles this."""
    with open(file, "a") as notes:
        notes.write(f"{os.getpid()}\n")
    return file


class Witness:
    """An argument that tells where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __reduce__(self) -> Any:
        return witness, (self.file,)


def test_the_lender_unpickles_nothing(one: forebay.SharedPool, tmp_path: Path) -> None:
    """A class that any program sends would run in the process that all depend on."""
    file = tmp_path / "witness"
    with one.acquire(Echo.spec(Witness(file))) as echo:
        assert echo.echo(1) == 1
        assert file.read_text().split() == [str(echo.lease.pid)]


def test_the_socket_is_of_this_user_alone(lending: Lending) -> None:
    """Others would get services that run as this user."""
    assert stat.S_IMODE(lending.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(lending.path.parent.stat().st_mode) == 0o700


@needs_root
def test_another_user_is_turned_away_even_past_the_files(lending: Lending) -> None:
    """The permissions of files are one fence, what the kernel says of the peer is another."""
    lending.path.chmod(0o777)
    let_others_reach(lending.path.parent)
    child = os.fork()
    if child == 0:
        os.setuid(NOBODY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.settimeout(5)
            stranger.connect(str(lending.path))
            os._exit(0 if stranger.recv(100) == b"" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_directory_of_others_is_refused(lending: Lending) -> None:
    """Whoever may write there could put a socket of their own in its place."""
    lending.path.parent.chmod(0o770)
    with (
        forebay.SharedPool(lending.path) as pool,
        pytest.raises(forebay.ConfigError, match="not a directory of yours alone"),
    ):
        pool.stats()


def test_nonsense_is_cut_off_and_hurts_nobody_else(
    lending: Lending, one: forebay.SharedPool
) -> None:
    """One broken program would take the pool from all."""
    for nonsense in (b"\x00", b"GET / HTTP/1.1", b"\x01" * 100, os.urandom(60_000)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.settimeout(5)
            stranger.connect(str(lending.path))
            stranger.send(nonsense)
            assert stranger.recv(100) == b""
    with one.acquire(Echo) as echo:
        assert echo.echo(1) == 1


def test_a_program_that_uses_a_ticket_twice_is_cut_off(
    lending: Lending, one: forebay.SharedPool
) -> None:
    """It would wait without a limit, and what it is granted would be lent to nobody."""
    hello, ask = struct.Struct("<BQI"), struct.Struct("<BQII")
    with (
        one.acquire(Echo),
        one.acquire(Echo),
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger,
    ):
        stranger.settimeout(5)
        stranger.connect(str(lending.path))
        stranger.send(hello.pack(1, 1, 0))
        told = re.search(rb"speaks version ([0-9]+)", stranger.recv(1000))
        assert told is not None
        stranger.send(hello.pack(1, 1, int(told[1])))
        assert stranger.recv(1000)
        stranger.send(ask.pack(3, 7, 0, 0))
        assert eventually(lambda: one.stats()["waiters"] == 1)
        stranger.send(ask.pack(3, 7, 0, 0))
        assert stranger.recv(1000) == b""
        assert eventually(lambda: one.stats()["waiters"] == 0)
    with one.acquire(Echo) as echo:
        assert echo.echo(1) == 1
    assert one.stats()["leased"] == 0


def test_a_forked_child_leaves_its_parents_lease_alone(one: forebay.SharedPool) -> None:
    """A child would give back what its parent still uses."""
    with one.acquire(Echo) as echo:
        child = os.fork()
        if child == 0:
            try:
                one.stats()
            except forebay.ConfigError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert echo.echo(1) == 1
    with one.acquire(Echo) as echo:
        assert echo.echo(2) == 2


def test_a_closed_pool_says_so(one: forebay.SharedPool) -> None:
    """A use after the end would connect again."""
    one.close()
    with pytest.raises(forebay.ClosedError):
        one.acquire(Echo).__enter__()


def test_no_lender_is_told_with_the_next_step(tmp_path: Path) -> None:
    """A newcomer would not know what to start."""
    with (
        forebay.SharedPool(tmp_path / "none.sock") as pool,
        pytest.raises(forebay.BrokenError, match=r"none\.sock; start one: forebay serve"),
    ):
        pool.acquire(Echo).__enter__()


THREADS, TASKS, ROUNDS = 8, 8, 40


def test_threads_and_loops_of_one_program_wait_side_by_side(
    one: forebay.SharedPool, other: forebay.SharedPool
) -> None:
    """Each of them reads answers of the others; one that is not told of its own waits for ever."""
    failures: list[BaseException] = []

    def in_threads(pool: forebay.SharedPool, name: str) -> None:
        try:
            for number in range(ROUNDS):
                with pool.acquire(Owned, timeout=20) as owned:
                    owned.enter(f"{name}-{number}")
                    owned.leave(f"{name}-{number}")
        except BaseException as error:
            failures.append(error)

    async def as_task(name: str) -> None:
        for number in range(ROUNDS):
            async with one.acquire(Owned, timeout=20) as owned:
                await owned.enter(f"{name}-{number}")
                await owned.leave(f"{name}-{number}")

    async def as_tasks() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(TASKS):
                tasks.create_task(as_task(f"task {number}"))

    threads = [
        threading.Thread(target=in_threads, args=(pool, f"thread {number}"))
        for number in range(THREADS)
        for pool in (one, other)
    ]
    for thread in threads:
        thread.start()
    asyncio.run(as_tasks())
    for thread in threads:
        thread.join()
    assert not failures
    assert one.stats()["leases"] == ROUNDS * (2 * THREADS + TASKS)
    assert one.stats()["starts"] <= 2


def test_an_interrupt_ends_a_wait_beside_a_thread_that_reads(path: Path) -> None:
    """No signal wakes a condition variable: it took effect once the other thread was served."""
    interrupted = threading.Event()

    def wait_before(pool: forebay.SharedPool) -> None:
        with pool.acquire(Echo, timeout=20):
            assert interrupted.is_set()

    def interrupt(pool: forebay.SharedPool) -> None:
        assert eventually(lambda: pool.stats()["waiters"] == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with Lending(path, "--max-size", "1") as lending, forebay.SharedPool(lending.path) as pool:
        with pool.acquire(Echo, timeout=10):
            first = threading.Thread(target=wait_before, args=(pool,))
            first.start()
            assert eventually(lambda: pool.stats()["waiters"] == 1)
            second = threading.Thread(target=interrupt, args=(pool,))
            second.start()
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt), pool.acquire(Echo, timeout=20):
                pass
            assert time.monotonic() - begun < 5
            interrupted.set()
            second.join()
        first.join()
