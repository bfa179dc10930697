"""The orderly end of a service: what it does before its process ends, and for how long it may."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import forebay
from tests.pool.processes import alive, eventually
from tests.pool.programs import run, write
from tests.pool.services import Closer, Leaver, OneLease

GRACE_S = 1.0
"""What a service has for its end."""


def notes(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def test_exit_handlers_run_when_the_pool_is_closed(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """A handler that removes a lock file or flushes a log must not be lost at every normal end."""
    file = tmp_path / "notes"
    with pool.acquire(Leaver.spec(str(file))) as leaver:
        leaver.register()
    assert notes(file) == []
    pool.close()
    assert notes(file) == ["atexit"]


def test_close_runs_before_the_exit_handlers_and_then_the_finalizer(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """A service that holds a connection or a licence gives it back in its method `close`."""
    file = tmp_path / "notes"
    with pool.acquire(Closer.spec(str(file))) as closer:
        closer.register()
    pool.close()
    # The handler is bound to the service, which therefore is finalized by nobody: see below.
    assert notes(file)[:2] == ["close", "atexit"]


def test_a_finalizer_runs_where_only_the_service_had_the_object(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """`__del__` is where some libraries remove their temporary files."""
    file = tmp_path / "notes"
    with pool.acquire(Closer.spec(str(file))):
        pass
    pool.close()
    assert notes(file) == ["close", "del"]


def test_shared_memory_of_a_service_is_gone_with_its_pool(pool: forebay.ServicePool) -> None:
    """100 MB in /dev/shm for each run fills the memory of a machine within a day."""
    with pool.acquire(Leaver) as leaver:
        path = Path("/dev/shm", leaver.share())
        assert path.exists()
    pool.close()
    assert not path.exists()


def test_a_service_that_serves_one_lease_ends_in_order(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """Clean processes for each trial are the ones that leave most behind."""
    file = tmp_path / "notes"
    with pool.acquire(OneLease.spec(str(file))) as leaver:
        leaver.register()
    assert eventually(lambda: notes(file) == ["atexit"])
    assert eventually(lambda: pool.stats()["deaths"] == {"discarded": 1})


def test_a_service_that_was_idle_for_too_long_ends_in_order(tmp_path: Path) -> None:
    """A pool that shrinks by night must not leave more behind than one that is closed."""
    file = tmp_path / "notes"
    with forebay.ServicePool(max_size=1, idle_timeout=0.05) as pool:
        with pool.acquire(Leaver.spec(str(file))) as leaver:
            leaver.register()
        assert eventually(lambda: notes(file) == ["atexit"])


def test_a_copy_of_a_service_ends_in_order(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """A copy has its own files and memory, and its own end."""
    file = tmp_path / "notes"
    with (
        pool.acquire(Leaver.spec(str(file))) as leaver,
        leaver.lease.fork(2) as copies,
    ):
        copies[0].register()
    assert eventually(lambda: notes(file) == ["atexit"])


def test_a_handler_that_hangs_is_cut_off(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """Closing a pool is bounded, whatever a handler does, and leaves no process."""
    file = tmp_path / "notes"
    with pool.acquire(Leaver.spec(str(file), hang=True)) as leaver:
        leaver.register()
        pids = [leaver.lease.pid, leaver.spawn()]
    began = time.monotonic()
    pool.close(timeout=30)
    assert time.monotonic() - began >= GRACE_S * 0.9
    assert notes(file) == []
    assert not any(map(alive, pids))


def test_programs_that_a_service_leaves_end_with_it(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """The time for an orderly end is not a way to survive the pool."""
    file = tmp_path / "notes"
    with pool.acquire(Leaver.spec(str(file))) as leaver:
        leaver.register()
        pids = [leaver.lease.pid, leaver.spawn()]
    pool.close(timeout=30)
    assert notes(file) == ["atexit"]
    assert not any(map(alive, pids))


def test_a_service_without_handlers_costs_a_close_nothing(pool: forebay.ServicePool) -> None:
    """Most services have nothing to do: one that hangs in a call is killed at once, as ever."""
    took = []
    for _ in range(3):
        with forebay.ServicePool(max_size=1) as quick, quick.acquire(Leaver) as leaver:
            pid, hung = leaver.lease.pid, leaver.lease.submit("hang")
            began = time.monotonic()
            quick.close(timeout=30)
            took.append(time.monotonic() - began)
            assert not alive(pid)
            with pytest.raises(forebay.Error):
                hung.result(timeout=10)
    assert min(took) < GRACE_S


def test_the_end_of_a_program_is_an_end_in_order(tmp_path: Path) -> None:
    """Most programs never close the default pool: their exit does."""
    file = tmp_path / "notes"
    write(
        tmp_path / "program.py",
        """
        import sys, forebay
        from tests.pool.services import Leaver

        if __name__ == "__main__":
            with forebay.acquire(Leaver.spec(sys.argv[1])) as leaver:
                leaver.register()
        """,
    )
    ended = run("program.py", file, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert notes(file) == ["atexit"]
