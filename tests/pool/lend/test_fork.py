from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from typing import Any

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually, parent
from tests.pool.services import Echo, Notes

CHILD_S = 20
"""A child that is not done by then is killed, and its test fails."""


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child, which leaves as os._exit does; fail with what it raised."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, from 3.12 on
        child = os.fork()
    if child == 0:
        os.close(read)
        told = ""
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CHILD_S)
            work()
        except BaseException:
            told = traceback.format_exc()
        os.write(write, told.encode()[-4000:])
        os._exit(0)
    os.close(write)
    with open(read) as told_by_child:
        told = told_by_child.read()
    _, status = os.waitpid(child, 0)
    assert not told, told
    assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"


@contextlib.contextmanager
def default_pool(pool: forebay.ServicePool) -> Iterator[None]:
    """Let `forebay.acquire` use this pool."""
    forebay.set_default_pool(pool)
    try:
        yield
    finally:
        forebay.set_default_pool(None)


def test_a_child_cannot_use_its_parents_pool(pool: forebay.ServicePool) -> None:
    """Two processes on one socket would read each other's answers: the child is refused."""
    with pool.acquire(Echo) as echo:

        def work() -> None:
            with pytest.raises(forebay.ConfigError, match="fork"), pool.acquire(Echo):
                pass
            with pytest.raises(forebay.ConfigError, match="fork"):
                pool.stats()
            with pytest.raises(forebay.Error):
                echo.echo(1)
            pool.close()

        in_child(work)
        assert echo.echo(1) == 1


def test_a_child_makes_a_pool_of_its_own(pool: forebay.ServicePool) -> None:
    """`forebay.acquire` works in a child as in its parent, with other services."""
    with default_pool(pool), forebay.acquire(Echo) as echo:
        ours, keeper = echo.lease.pid, parent(echo.lease.pid)

        def work() -> None:
            with forebay.acquire(Echo) as other:
                assert other.echo(2) == 2
                assert other.lease.pid != ours
                assert parent(other.lease.pid) != keeper
            forebay.default_pool().close()

        in_child(work)
        assert echo.echo(1) == 1


@pytest.mark.parametrize("end", ["exit", "kill", "collect"])
def test_the_end_of_a_child_ends_no_service_of_its_parent(
    pool: forebay.ServicePool, end: str
) -> None:
    """A child holds copies of every socket; closing them closes nothing of the parent's."""
    with pool.acquire(Echo) as echo, pool.acquire(Echo) as other:
        pids = [echo.lease.pid, other.lease.pid]
        child = os.fork()
        if child == 0:
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if end == "collect":
                getattr(pool, "_records", {}).clear()
                del echo, other
                gc.collect()
            os._exit(0)
        os.waitpid(child, 0)
        assert [echo.echo(1), other.echo(2)] == [1, 2]
        assert all(map(alive, pids))
    with pool.acquire(Echo) as echo:
        assert echo.lease.pid in pids


def test_a_child_that_leaves_the_lease_disturbs_nobody(pool: forebay.ServicePool) -> None:
    """A `with` block that a child leaves too ends the lease once, in the parent."""
    acquired = pool.acquire(Notes)
    with acquired as notes:
        pid = notes.lease.pid
        notes.note("x")
        in_child(lambda: acquired.__exit__(None, None, None))
        assert notes.read() == ["x"]
    with pool.acquire(Notes) as notes:
        assert notes.lease.pid == pid
        assert notes.count() == 1


def test_a_child_forked_while_others_use_the_pool_is_not_stuck(pool_of: PoolOf) -> None:
    """A lock that another thread held at the fork is not waited for in the child."""
    stop = threading.Event()

    def use(base: int) -> None:
        while not stop.is_set():
            with pool.acquire(Echo.spec(base=base)) as echo:
                echo.add(1)

    def work() -> None:
        with pytest.raises(forebay.ConfigError), pool.acquire(Echo.spec(base=99)):
            pass
        pool.close()

    with pool_of(max_size=2) as pool:
        threads = [threading.Thread(target=use, args=(base,)) for base in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                in_child(work)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert pool.stats()["live"] <= 2


def child_of_multiprocessing(answers: Any, keeper: int) -> None:
    """What a worker of multiprocessing does: use the default pool."""
    with forebay.acquire(Echo) as echo:
        answers.send((echo.echo(7), echo.lease.pid, parent(echo.lease.pid) != keeper))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_has_a_pool_of_its_own(
    pool: forebay.ServicePool, method: str
) -> None:
    """Workers of multiprocessing can use services, and leave none behind."""
    context: BaseContext = multiprocessing.get_context(method)
    with default_pool(pool), forebay.acquire(Echo) as echo:
        keeper = parent(echo.lease.pid)
        ours, theirs = context.Pipe()
        with ours, theirs:
            child = context.Process(target=child_of_multiprocessing, args=(theirs, keeper))  # type: ignore[attr-defined]
            child.start()
            assert ours.poll(CHILD_S)
            answer, pid, other_keeper = ours.recv()
            child.join(CHILD_S)
            assert child.exitcode == 0
            child.close()
        assert (answer, other_keeper) == (7, True)
        assert eventually(lambda: not alive(pid))
        assert echo.echo(1) == 1
    with contextlib.suppress(Exception):
        from multiprocessing import resource_tracker

        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
