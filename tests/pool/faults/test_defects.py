"""The defects that were found in CompilerGym's pool, each as a test that ours passes.

First those that were reproduced there, then those that were read in its source. The docstring says
what the original does; what ours must do is the name.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.faults.test_client_death import client
from tests.pool.original.test_original import listening_sockets
from tests.pool.processes import alive, children, descendants, eventually, parent
from tests.pool.services import Echo, Notes, Once, Slow, Tree

SHELL_ECHO = 'printf "!" >&"$1"; cat <&"$1" >&"$1"; true'
GONE_S = 0.05


def shell(*arguments: str, **settings: dict[str, str]) -> forebay.Command:
    """A program that echoes, started with more arguments and settings."""
    return forebay.Command(["sh", "-c", SHELL_ECHO, "sh", "{fd}", *arguments], **settings)


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@contextlib.contextmanager
def starting(pool: forebay.ServicePool, spec: forebay.Spec[Slow]) -> Iterator[threading.Thread]:
    """A thread that acquires what takes long to start; the pool's end is its end."""

    def acquire() -> None:
        with contextlib.suppress(forebay.ClosedError), pool.acquire(spec, timeout=None):
            pass

    before = pool.stats()["starts"]
    thread = threading.Thread(target=acquire)
    thread.start()
    assert eventually(lambda: pool.stats()["starts"] == before + 1)
    yield thread
    pool.close()
    thread.join()


# --- reproduced -------------------------------------------------------------------------------


def test_nothing_survives_a_killed_client(tmp_path: Path) -> None:
    """3 of 3 services were alive 2 s after it; test_survivors.py does it fifty times."""
    with client("wait_for_the_end", tmp_path) as killed:
        killed.process.kill()
        killed.expect_nothing_left()


def test_a_hung_service_is_never_handed_out(pool: forebay.ServicePool) -> None:
    """With a limit of 3 s the call blocked 6 s, and the next make returned the same process."""
    with pool.acquire(Echo) as echo:
        hung = echo.lease.pid
        os.kill(hung, signal.SIGSTOP)
        limited = echo.lease.options(timeout=0.2)
        began = time.monotonic()
        with pytest.raises(forebay.DeadlineError):
            limited.echo(1)
        assert time.monotonic() - began < 10
    with pool.acquire(Echo) as echo:
        assert (echo.lease.pid != hung, echo.echo(1)) == (True, 1)
    assert eventually(lambda: not alive(hung))


def test_a_service_killed_while_idle_is_replaced_at_acquire(pool: forebay.ServicePool) -> None:
    """Acquire returned the dead one."""
    with pool.acquire(Echo) as echo:
        victim = echo.lease.pid
    os.kill(victim, signal.SIGKILL)
    assert eventually(lambda: not alive(victim))
    with pool.acquire(Echo) as echo:
        assert (echo.lease.pid != victim, echo.echo(1)) == (True, 1)


def test_a_former_holder_cannot_give_away_anothers_service(pool_of: PoolOf) -> None:
    """A stale close put the service back while its next holder was using it."""
    with pool_of(max_size=1) as pool:
        with pool.acquire(Echo) as former:
            stale = former.lease
        with pool.acquire(Echo) as holder:
            assert holder.lease.pid == stale.pid
            stale.close()
            full = pool.acquire(Echo, timeout=0.05)
            with pytest.raises(forebay.DeadlineError), full:
                pass
            with pytest.raises(forebay.StaleError):
                former.echo(1)
            assert holder.echo(2) == 2


def test_release_ends_a_service_that_is_not_kept(pool: forebay.ServicePool) -> None:
    """Of the variant without a cache 4 of 4 services were alive after their release."""
    for _ in range(4):
        with pool.acquire(Once) as once:
            pid = once.lease.pid
        assert eventually(lambda pid=pid: not alive(pid))
    assert pool.stats()["live"] == 0


def test_a_warm_acquire_does_not_wait_for_a_cold_start() -> None:
    """It took 1673 ms, under the one lock. The cold start here takes five seconds."""
    pool = forebay.ServicePool(max_size=2)
    with pool.acquire(Echo) as echo:
        warm = echo.lease.pid

    def lease() -> None:
        with pool.acquire(Echo) as echo:
            assert echo.lease.pid == warm

    with starting(pool, Slow.spec(5.0)) as cold:
        took = [seconds(lease) for _ in range(2_000)]
        assert cold.is_alive(), "the start was over before it was measured"
    assert statistics.median(took) < 50e-6
    assert max(took) < 0.5


def test_six_threads_start_in_parallel(pool_of: PoolOf) -> None:
    """They started one after another: 872 ms where one takes 110 ms."""
    with pool_of(max_size=7) as pool, ThreadPoolExecutor(6) as threads:
        with pool.acquire(Echo):  # the template is there
            pass

        def start(number: int) -> int:
            with pool.acquire(Slow.spec(2 + number / 1e6)) as slow:
                return slow.echo(number)

        took = seconds(lambda: list(threads.map(start, range(6))))
    assert took < 6 * 2 / 2


def test_a_forked_child_starts_empty_and_its_parent_goes_on(pool: forebay.ServicePool) -> None:
    """The child hung inside os.fork() for more than 60 s."""
    with pool.acquire(Echo) as echo:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(status_of_a_pool_beside(echo.lease.pid))
        assert os.waitpid(child, 0)[1] == 0
        assert time.monotonic() - began < 10
        assert echo.echo(1) == 1


def status_of_a_pool_beside(service: int) -> int:
    """In a forked child: 0 where a pool of its own works with a service of its own."""
    try:
        with forebay.ServicePool(max_size=1) as own, own.acquire(Echo) as other:
            return int(other.lease.pid == service or other.echo(1) != 1)
    except BaseException:
        return 2


def test_a_time_limit_is_not_in_the_key(pool: forebay.ServicePool) -> None:
    """A change that concerns the client alone missed the pool."""
    with pool.acquire(Echo, timeout=5) as echo:
        pid = echo.lease.pid
    with pool.acquire(Echo, timeout=6) as echo:
        assert echo.lease.options(timeout=7).echo(1) == 1
        assert echo.lease.pid == pid


def test_arguments_from_the_environment_are_in_the_key(pool: forebay.ServicePool) -> None:
    """With a changed COMPILER_GYM_SERVICE_ARGS the old service was used again."""
    with pool.acquire(shell(env={"SERVICE_ARGS": "-O2"})) as backend:
        first = backend.lease.pid
    with pool.acquire(shell(env={"SERVICE_ARGS": "-O3"})) as backend:
        assert backend.lease.pid != first
    with pool.acquire(shell(env={"SERVICE_ARGS": "-O2"})) as backend:
        assert backend.lease.pid == first


def test_the_environment_at_the_acquire_is_in_the_key(
    pool: forebay.ServicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, where the variable is this process's own, which a program inherits."""
    pids = []
    for value in ("-O2", "-O3"):
        monkeypatch.setenv("SERVICE_ARGS", value)
        with pool.acquire(shell()) as backend:
            pids.append(backend.lease.pid)
            assert f"SERVICE_ARGS={value}" in environment(pids[-1])
    assert len(set(pids)) == 2


def environment(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


def test_arguments_keep_their_order(pool: forebay.ServicePool) -> None:
    """They were a frozenset, in another order at each run."""
    arguments = [f"--option-{number}" for number in range(20)]
    with pool.acquire(shell(*arguments)) as backend:
        first = backend.lease.pid
        assert command_line(first)[-21:-1] == arguments
    with pool.acquire(shell(*reversed(arguments))) as backend:
        assert backend.lease.pid != first, "another order is another service"


def test_a_fork_does_not_overwrite_its_origin(pool: forebay.ServicePool) -> None:
    """The forked session was stored under id 0, where the first one was."""
    with pool.acquire(Tree) as tree:
        tree.step(0)
        with tree.lease.fork() as [first], tree.lease.fork() as [second]:
            paths = [service.step(number) for number, service in enumerate((tree, first, second))]
            assert paths == [[0, 0], [0, 1], [0, 2]]
            assert len({service.lease.pid for service in (tree, first, second)}) == 3


def test_sigterm_ends_a_leased_service_without_a_traceback(pool: forebay.ServicePool) -> None:
    """With a session open it ended in an AttributeError."""
    with pool.acquire(Notes) as notes:
        notes.note("open")
        os.kill(notes.lease.pid, signal.SIGTERM)
        with pytest.raises(forebay.DiedError) as caught:
            notes.read()
    assert caught.value.signal == signal.SIGTERM
    assert caught.value.stderr_tail == ""


def test_two_leases_never_share_a_directory(pool: forebay.ServicePool) -> None:
    """Sessions of one service wrote to the same src.c."""
    with pool.acquire(Echo) as one, pool.acquire(Echo) as two:
        folders = {Path(service.temporary_file()).parent for service in (one, two)}
        assert len(folders) == 2


def test_files_of_a_killed_keeper_are_reaped(
    pool_of: PoolOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """13 directories of killed clients were left in shared memory after a day of tests."""
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(base))
    monkeypatch.setenv("TMPDIR", str(base))  # for a lender
    with pool_of(max_size=1) as pool:
        with pool.acquire(Echo) as echo:
            file = Path(echo.temporary_file())
            service, keeper = echo.lease.pid, parent(echo.lease.pid)
            os.kill(keeper, signal.SIGKILL)
            assert eventually(lambda: not alive(keeper) and not alive(service))
        with pool.acquire(Echo):  # starts another keeper, which sweeps
            assert not file.exists()
    assert list(base.iterdir()) == []


# --- read in source ---------------------------------------------------------------------------


def test_readiness_is_not_polled_for() -> None:
    """The first look at the port file came after 100 ms, the second 120 ms later."""

    def start() -> None:
        with forebay.ServicePool(max_size=1) as pool, pool.acquire(shell()):
            pass

    assert min(seconds(start) for _ in range(5)) < 0.1, "keeper included"


def test_who_says_ready_can_serve(pool_of: PoolOf, tmp_path: Path) -> None:
    """The port file was written before the server listened."""
    late = 'sleep 0.2; printf "!" >&"$1"; cat <&"$1" >&"$1"; true'
    command = forebay.Command(["sh", "-c", late, "sh", "{fd}"])
    with pool_of(max_size=1) as pool:
        began = time.monotonic()
        with pool.acquire(command) as backend:
            assert time.monotonic() - began >= 0.2
            backend.socket.settimeout(1.0)
            backend.socket.sendall(b"at once")
            assert backend.socket.recv(64) == b"at once"


def test_close_is_one_deadline_for_all() -> None:
    """Services were shut down one after another, 90 s each at worst, under the lock."""
    pool = forebay.ServicePool(max_size=6)
    with contextlib.ExitStack() as stack:
        for number in range(6):
            echo = stack.enter_context(pool.acquire(Echo))
            echo.ignore_termination()
            if number % 2:
                os.kill(echo.lease.pid, signal.SIGSTOP)
        keeper = parent(echo.lease.pid)
        processes = [keeper, *descendants(keeper)]
        assert seconds(pool.close) < 2.0
        assert not any(map(alive, processes))


def test_importing_starts_and_registers_nothing() -> None:
    """A pool was made, and an exit handler registered, by the import."""
    program = """
import atexit, os
before = atexit._ncallbacks(), os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")
import forebay
after = atexit._ncallbacks(), os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")
assert before == after, (before, after)
assert open(f"/proc/self/task/{os.getpid()}/children").read() == ""
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)


def test_collecting_a_forgotten_lease_waits_for_nothing(pool: forebay.ServicePool) -> None:
    """`__del__` took the pool's lock and could wait 90 s for a process."""
    lender = pool.acquire(Echo)
    echo = lender.__enter__()
    os.kill(echo.lease.pid, signal.SIGSTOP)

    def forget() -> None:
        nonlocal lender, echo
        del lender, echo
        gc.collect()

    with pool._lock:
        assert seconds(forget) < 0.5


def test_a_closed_handle_raises(pool: forebay.ServicePool) -> None:
    """A call on a handle that was shut down silently started a new service."""
    with pool.acquire(Echo) as echo:
        lease = echo.lease
        lease.close()
        with pytest.raises(forebay.StaleError):
            echo.echo(1)
    assert pool.stats()["starts"] == 1
    pool.close()
    with pytest.raises(forebay.ClosedError), pool.acquire(Echo):
        pass


def test_nothing_listens(pool: forebay.ServicePool) -> None:
    """Services listened on 0.0.0.0, without encryption or authentication."""
    with pool.acquire(Echo) as echo, pool.acquire(shell()) as backend:
        keeper = parent(echo.lease.pid)
        everyone = {keeper, *children(keeper)}
        assert {echo.lease.pid, backend.lease.pid} <= everyone
        assert [listening_sockets(pid) for pid in everyone] == [[]] * len(everyone)


def test_the_pool_has_a_limit_and_names_it(pool: forebay.ServicePool) -> None:
    """It was unbounded, and nobody could wait."""
    with pool.acquire(Echo), pool.acquire(Echo):
        third = pool.acquire(Echo, timeout=0.05)
        with pytest.raises(forebay.DeadlineError, match=r"raise (--)?max.size \(2\)"), third:
            pass
        assert pool.stats()["live"] == 2
