"""What CompilerGym's tests ask of its pool (pull request 583), asked of ours.

Each test bears the name of the original, and its docstring says the behaviour; where ours differs
on purpose, it says so and why. Those about environments are in test_original_environment.py.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.pool.processes import alive, eventually
from tests.pool.services import Echo, Tree


@contextlib.contextmanager
def other_pool() -> Iterator[forebay.ServicePool]:
    with forebay.ServicePool(max_size=2, name="other") as made:
        yield made


def known(pool: forebay.ServicePool) -> set[int]:
    """The processes of a pool, lent or idle, as the keeper last told."""
    return {service["pid"] for service in pool.services() if service["pid"]}


# --- tests/service/connection_pool_test.py ----------------------------------------------------


def test_service_pool_with_statement() -> None:
    """The `with` block closes the pool at its end."""
    with forebay.ServicePool(max_size=1) as pool:
        with pool.acquire(Echo) as echo:
            pid = echo.lease.pid
        assert alive(pid)
    assert not alive(pid)
    with pytest.raises(forebay.ClosedError), pool.acquire(Echo):
        pass


def test_service_pool_double_close() -> None:
    """Closing twice is fine."""
    pool = forebay.ServicePool(max_size=1)
    with pool.acquire(Echo):
        pass
    pool.close()
    pool.close()


def test_service_pool_acquire_release(pool: forebay.ServicePool) -> None:
    """The service counts as in the pool while acquired and after release."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        assert known(pool) == {pid}
    assert known(pool) == {pid}


def test_service_pool_contains(pool: forebay.ServicePool) -> None:
    """It is in no other pool, the default one included; it stays in its own after release."""
    with other_pool() as other:
        forebay.set_default_pool(other)
        try:
            with pool.acquire(Echo) as echo, forebay.acquire(Echo) as stranger:
                pids = echo.lease.pid, stranger.lease.pid
                assert (known(pool), known(other)) == ({pids[0]}, {pids[1]})
        finally:
            forebay.set_default_pool(None)
        assert (known(pool), known(other)) == ({pids[0]}, {pids[1]})


def test_service_pool_close_frees_service(pool: forebay.ServicePool) -> None:
    """Closing the pool ends a service that is still held; ours tells the holder's next call."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        pool.close()
        assert eventually(lambda: not alive(pid))
        with pytest.raises(forebay.Error):
            echo.echo(1)


def test_service_pool_service_is_not_closed(pool: forebay.ServicePool) -> None:
    """Closing an acquired service only releases it; the process lives."""
    lender = pool.acquire(Echo)
    echo = lender.__enter__()
    echo.lease.close()
    assert alive(echo.lease.pid)
    lender.__exit__(None, None, None)
    assert alive(echo.lease.pid)


def test_service_pool_with_service_is_not_closed(pool: forebay.ServicePool) -> None:
    """The same with a `with` block over the service."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
    assert alive(pid)


def test_service_pool_release_service(pool: forebay.ServicePool) -> None:
    """A released service stays alive, and serves whoever comes next."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
    with pool.acquire(Echo) as echo:
        assert (echo.lease.pid, echo.echo(1)) == (pid, 1)


def test_service_pool_release_dead_service(pool: forebay.ServicePool) -> None:
    """A service that ended is not kept."""
    with pool.acquire(Echo) as echo:
        pid = echo.lease.pid
        with pytest.raises(forebay.DiedError):
            echo.leave(0)
    assert pid not in known(pool)
    assert pool.stats()["live"] == 0


def test_service_pool_size(pool: forebay.ServicePool) -> None:
    """Acquired and idle services both count; ours tells the two apart."""
    assert pool.stats()["live"] == 0
    with pool.acquire(Echo):
        assert (pool.stats()["live"], pool.stats()["idle"]) == (1, 0)
        with pool.acquire(Echo):
            assert (pool.stats()["live"], pool.stats()["idle"]) == (2, 0)
        assert (pool.stats()["live"], pool.stats()["idle"]) == (2, 1)
    assert (pool.stats()["live"], pool.stats()["idle"]) == (2, 2)


def test_service_pool_make_release(pool: forebay.ServicePool) -> None:
    """Two live leases have two services; the third lease gets the one that was released last."""
    with pool.acquire(Echo) as first, pool.acquire(Echo) as second:
        pids = (first.lease.pid, second.lease.pid)
        assert pids[0] != pids[1]
    with pool.acquire(Echo) as third:
        assert third.lease.pid == pids[0]


def test_service_pool_make_release_loop(pool: forebay.ServicePool) -> None:
    """Five leases in a row: one service serves them all."""
    for number in range(5):
        with pool.acquire(Echo) as echo:
            assert echo.echo(number) == number
        assert pool.stats()["live"] == 1


def test_service_pool_fork(pool: forebay.ServicePool) -> None:
    """The end of a fork leaves its origin alive; ours is a process of its own, never shared."""
    with pool.acquire(Tree) as tree:
        with tree.lease.fork() as [copied]:
            assert copied.lease.pid != tree.lease.pid
        assert tree.step(1) == [1]


def test_service_pool_forked_service_dies(pool: forebay.ServicePool) -> None:
    """When both services died, origin and fork each get a new one; ours by another acquire."""
    with pool.acquire(Tree) as tree, tree.lease.fork() as [copied]:
        dead = {tree.lease.pid, copied.lease.pid}
        for service in (tree, copied):
            os.kill(service.lease.pid, 9)
            with pytest.raises(forebay.DiedError):
                service.step(1)
    with pool.acquire(Tree) as one, pool.acquire(Tree) as two:
        assert {one.lease.pid, two.lease.pid}.isdisjoint(dead)
        assert one.step(1) == two.step(1) == [1]
        assert {one.lease.pid, two.lease.pid} == known(pool)


def test_service_pool_forked_environment_ends_scope(pool: forebay.ServicePool) -> None:
    """The service survives the end of its fork's scope, in the pool as outside of it."""
    with pool.acquire(Tree) as tree:
        pid = tree.lease.pid
        with tree.lease.fork() as [copied]:
            copy = copied.lease.pid
        assert eventually(lambda: not alive(copy))
        assert alive(pid)
    assert eventually(lambda: known(pool) == {pid})


# --- tests/service/connection_test.py ---------------------------------------------------------


def test_create_invalid_options(pool: forebay.ServicePool) -> None:
    """No service is a TypeError there; ours says what can be one (ConfigError, a ValueError)."""
    with pytest.raises(forebay.ConfigError, match="None is no service"):
        pool.acquire(None)  # type: ignore[arg-type]


def test_create_channel_failed_subprocess(pool: forebay.ServicePool) -> None:
    """A service that ends before it is ready is an error that says how it ended, at once."""
    with pytest.raises(forebay.DiedError, match="code 3"), pool.acquire(ends_at_once(3)):
        pass
    assert pool.stats()["starts"] == 1, "a program that cannot start is not tried again"


def test_create_channel_failed_subprocess_rpc_timeout() -> None:
    """One that is never ready is an error that says the limit; the original counts attempts."""
    never = forebay.Command(["sh", "-c", "exec sleep 3600", "{fd}"])
    with forebay.ServicePool(max_size=1, start_timeout=0.2) as pool:
        with pytest.raises(forebay.DiedError) as caught, pool.acquire(never, timeout=10):
            pass
        assert caught.value.cause == "start_deadline"
        assert "not ready in time" in str(caught.value)


def ends_at_once(code: int) -> forebay.Command:
    return forebay.Command(["sh", "-c", f"exit {code}", "{fd}"])


def test_call_stub_invalid_type(pool: forebay.ServicePool) -> None:
    """An argument that cannot travel is refused before anything is sent."""
    with pool.acquire(Echo) as echo:
        with pytest.raises((forebay.Error, TypeError)):
            echo.echo(threading.Lock())
        assert echo.echo(1) == 1, "the service did not notice"


def test_call_stub_negative_timeout(pool: forebay.ServicePool) -> None:
    """A time limit below zero has passed: TimeoutError, as there."""
    with pool.acquire(Echo) as echo, pytest.raises(TimeoutError):
        echo.lease.options(timeout=-1.0).echo(1)


def test_managed_connection_repr(pool: forebay.ServicePool) -> None:
    """The lease shows its process; where it says "not running", ours says that it has ended."""
    with pool.acquire(Echo) as echo:
        assert f"process {echo.lease.pid}, open" in repr(echo.lease)
    assert f"process {echo.lease.pid}, ended" in repr(echo.lease)


# --- tests/service/service_cache_test.py ------------------------------------------------------


def test_service_directory(pool: forebay.ServicePool) -> None:
    """A service has a directory that is made, can be written, and goes with it."""
    with pool.acquire(Echo) as echo:
        file = Path(echo.temporary_file())
        assert file.exists()
        with pytest.raises(forebay.DiedError):
            echo.leave(0)
    assert eventually(lambda: not file.parent.exists())


# --- tests/llvm/threading_test.py -------------------------------------------------------------


def test_running_environment_in_background_thread(pool: forebay.ServicePool) -> None:
    """A service is acquired, used and released by a thread that is not the main one."""

    def use() -> Any:
        with pool.acquire(Echo) as echo:
            return echo.echo("from a thread")

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(use).result() == "from a thread"


def test_moving_environment_to_background_thread(pool: forebay.ServicePool) -> None:
    """A lease that one thread acquired is used by another."""
    with pool.acquire(Echo) as echo, ThreadPoolExecutor(1) as thread:
        assert thread.submit(echo.echo, "moved").result() == "moved"
        assert echo.echo("back") == "back"


# --- tests/llvm/multiprocessing_test.py -------------------------------------------------------


def test_running_environment_in_background_process() -> None:
    """A child process makes a pool of its own and uses it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_echo_in_a_child, args=(theirs,))
    child.start()
    theirs.close()
    assert ours.recv() == "from a child"
    child.join()
    child.close()
    ours.close()


def _echo_in_a_child(pipe: Any) -> None:
    with forebay.ServicePool(max_size=1) as pool, pool.acquire(Echo) as echo:
        pipe.send(echo.echo("from a child"))


def test_moving_environment_to_background_process(pool: forebay.ServicePool) -> None:
    """A live lease cannot be moved to another process: TypeError, as there."""
    context = multiprocessing.get_context("spawn")
    with pool.acquire(Echo) as echo:
        moving = context.Process(target=print, args=(echo.lease,))
        with pytest.raises(TypeError):
            multiprocessing.reduction.ForkingPickler.dumps(echo.lease)
        assert moving.pid is None
        assert echo.echo(1) == 1


def test_port_collision_test(pool: forebay.ServicePool) -> None:
    """Two services never meet on an address; ours have no address at all, but sockets of theirs."""
    with pool.acquire(Echo.spec(base=1)) as one, pool.acquire(Echo.spec(base=2)) as two:
        assert (one.add(0), two.add(0)) == (1, 2)
        for service in (one, two):
            assert listening_sockets(service.lease.pid) == []


def listening_sockets(pid: int) -> list[str]:
    """Inodes of the sockets of a process that listen, whether Unix's or TCP's."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:  # the one that the listing used
            continue
        if target.startswith("socket:"):
            own.add(target[len("socket:[") : -1])
    listening = set()
    for table, state, inode in (("tcp", 3, 9), ("tcp6", 3, 9)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[state] == "0A":
                listening.add(fields[inode])
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & 0x10000:  # __SO_ACCEPTCON
            listening.add(fields[6])
    return sorted(own & listening)


def test_listening_sockets_are_seen() -> None:
    """The look at a service's sockets above would see one."""
    with socket.create_server(("127.0.0.1", 0)):
        assert len(listening_sockets(os.getpid())) == 1
