"""The orderly end of a service: what it does before its process ends, and for how long it may."""

from __future__ import annotations

import os
import select
import signal
import textwrap
import time
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.processes import alive, eventually
from tests.pool.scripts import run, write
from tests.pool.services import Closer, ForkedLeaver, Leaver, OneLease
from tests.pool.shared.lender import Lending

GRACE_S = 1.0
"""What a service has for its end."""


def end_services(pool: forebay.ServicePool | forebay.SharedPool) -> None:
    """End the services of a pool and wait for it: by its close, or by a drain of a lent one."""
    if isinstance(pool, forebay.ServicePool):
        pool.close(timeout=30)
        return
    pids = [service["pid"] for service in pool.services()]
    pool.drain()
    assert eventually(lambda: not any(map(alive, pids)))


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
    end_services(pool)
    assert notes(file) == ["atexit"]


def test_close_runs_before_the_exit_handlers_and_then_the_finalizer(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """A service that holds a connection or a licence gives it back in its method `close`."""
    file = tmp_path / "notes"
    with pool.acquire(Closer.spec(str(file))) as closer:
        closer.register()
    end_services(pool)
    # The handler is bound to the service, which therefore is finalized by nobody: see below.
    assert notes(file)[:2] == ["close", "atexit"]


def test_a_finalizer_runs_where_only_the_service_had_the_object(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """`__del__` is where some libraries remove their temporary files."""
    file = tmp_path / "notes"
    with pool.acquire(Closer.spec(str(file))):
        pass
    end_services(pool)
    assert notes(file) == ["close", "del"]


def test_shared_memory_of_a_service_is_gone_with_its_pool(pool: forebay.ServicePool) -> None:
    """100 MB in /dev/shm for each run fills the memory of a machine within a day."""
    with pool.acquire(Leaver) as leaver:
        path = Path("/dev/shm", leaver.share())
        assert path.exists()
    end_services(pool)
    assert eventually(lambda: not path.exists())


def test_a_service_that_serves_one_lease_ends_in_order(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """Clean processes for each trial are the ones that leave most behind."""
    file = tmp_path / "notes"
    with pool.acquire(OneLease.spec(str(file))) as leaver:
        leaver.register()
    assert eventually(lambda: notes(file) == ["atexit"])
    assert eventually(lambda: pool.stats()["deaths"] == {"discarded": 1})


def test_a_service_that_was_idle_for_too_long_ends_in_order(
    pool_of: PoolOf, tmp_path: Path
) -> None:
    """A pool that shrinks by night must not leave more behind than one that is closed."""
    file = tmp_path / "notes"
    with pool_of(max_size=1, idle_timeout=0.05) as pool:
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
    end_services(pool)
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
    end_services(pool)
    assert notes(file) == ["atexit"]
    assert eventually(lambda: not any(map(alive, pids)))


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


@pytest.mark.parametrize("service", [OneLease, ForkedLeaver])
def test_a_service_of_a_shared_pool_that_serves_one_lease_ends_in_order(
    lending: Lending, tmp_path: Path, service: type[Leaver]
) -> None:
    """Each trial of an application left what its exit handlers would have removed."""
    file = tmp_path / "notes"
    with forebay.SharedPool(lending.path) as pool:
        with pool.acquire(service.spec(str(file))) as leaver:
            leaver.register()
            leaver.spawn()  # the keeper is told of what a call registered after its answer
        assert eventually(lambda: notes(file) == ["atexit"])
        assert eventually(lambda: pool.stats()["deaths"] == {"discarded": 1})


def test_a_service_that_is_given_back_ends_when_a_slow_lender_hears_of_it(
    lending: Lending, tmp_path: Path
) -> None:
    """Before that, its end looks like its own, and what it started is killed with it."""
    file = tmp_path / "notes"
    with forebay.SharedPool(lending.path) as pool:
        with pool.acquire(OneLease.spec(str(file))) as leaver:
            leaver.register()
            pidfd = os.pidfd_open(leaver.lease.pid)
            lending.stop()
        try:
            assert select.select([pidfd], [], [], 0.3) == ([], [], [])
        finally:
            lending.send(signal.SIGCONT)
            os.close(pidfd)
        assert eventually(lambda: pool.stats()["deaths"] == {"discarded": 1})
        assert notes(file) == ["atexit"]


def test_a_service_of_a_shared_pool_whose_lease_went_wrong_is_killed(
    lending: Lending, tmp_path: Path
) -> None:
    """A service in an unknown state does nothing more, in a shared pool neither."""
    file = tmp_path / "notes"
    with forebay.SharedPool(lending.path) as pool:
        with pool.acquire(OneLease.spec(str(file))) as leaver:
            pid = leaver.lease.pid
            leaver.register()
            with pytest.raises(forebay.DeadlineError):
                leaver.lease.options(timeout=0.1).hang()
        assert eventually(lambda: not alive(pid))
    assert notes(file) == []


@pytest.mark.parametrize("idle", [True, False])
def test_a_service_that_is_drained_ends_in_order(
    lending: Lending, tmp_path: Path, idle: bool
) -> None:
    """New code is rolled out without what the services of the old one would leave behind."""
    file = tmp_path / "notes"
    with forebay.SharedPool(lending.path) as pool:
        with pool.acquire(Leaver.spec(str(file))) as leaver:
            leaver.register()
            if not idle:
                assert pool.drain() == (0, 1)
        if idle:
            assert eventually(lambda: pool.drain() == (1, 0))
        assert eventually(lambda: notes(file) == ["atexit"])


IMPORTER = """
    import atexit, multiprocessing.util, os, shutil, sys, tempfile, threading, time
    import forebay

    PLACE = os.getcwd()
    KEPT = tempfile.mkdtemp(prefix="kept-", dir=PLACE)
    atexit.register(shutil.rmtree, KEPT)
    HELD = tempfile.TemporaryDirectory(prefix="held-", dir=PLACE)

    def note(what):
        with open(os.path.join(PLACE, "notes"), "a") as file:
            file.write(what + "\\n")

    class Importer(forebay.Service):
        def pid(self):
            return os.getpid()

        def there(self):
            return os.path.isdir(KEPT), os.path.isdir(HELD.name)

        def register(self):
            self.own = tempfile.TemporaryDirectory(prefix="own-", dir=PLACE)
            multiprocessing.util.Finalize(None, note, ("multiprocessing",), exitpriority=0)
            atexit.register(note, "atexit")
            return self.own.name

    class Closing(Importer):
        def close(self):
            note("close")

    class Stubborn(Importer):
        def close(self):
            note("close")
            threading.Thread(target=time.sleep, args=(3600,)).start()
            sys.exit("this ends nothing")

    class Forked(Closing):
        resets = forebay.Reset.FORK

        def __init__(self):
            atexit.register(note, "template")
            self.made = tempfile.TemporaryDirectory(prefix="made-", dir=PLACE)

        def there(self):
            return *super().there(), os.path.isdir(self.made.name)

    def ended(pid):
        from tests.pool.processes import alive, eventually
        return eventually(lambda: not alive(pid))
"""
"""A module with exit handlers of its own, whose services have others."""


def importer(directory: Path, program: str) -> list[str]:
    """Run a program that has its services from that module; what they noted at their ends."""
    write(directory / "importer.py", IMPORTER)
    body = textwrap.indent(textwrap.dedent(program), "    ")
    head = "import forebay, os\nfrom importer import *\n\nif __name__ == '__main__':\n"
    (directory / "program.py").write_text(head + body)
    ended = run("program.py", cwd=directory)
    assert (ended.returncode, ended.stderr) == (0, "")
    return notes(directory / "notes")


def test_what_a_module_made_at_import_outlives_each_service(tmp_path: Path) -> None:
    """A service that was idle for long took the folder of all others, and of those to come."""
    noted = importer(
        tmp_path,
        """
        with forebay.ServicePool(max_size=2, idle_timeout=0.05) as pool:
            with pool.acquire(Closing) as kept:
                with pool.acquire(Closing) as idle:
                    pid = idle.pid()
                assert ended(pid)
                assert all(kept.there()), kept.there()
        """,
    )
    assert noted == ["close", "close"]


def test_a_service_runs_its_own_handlers_and_those_that_libraries_keep_for_it(
    tmp_path: Path,
) -> None:
    """What a service makes is its own to remove, also through libraries imported before it."""
    noted = importer(
        tmp_path,
        """
        with forebay.ServicePool(max_size=1) as pool, pool.acquire(Importer) as service:
            own = service.register()
            assert os.path.isdir(own)
        assert not os.path.isdir(own)
        """,
    )
    assert noted == ["atexit", "multiprocessing"]


def test_a_copy_runs_no_handler_of_its_original(tmp_path: Path) -> None:
    """Each end of a copy of a service removed what the service itself still used."""
    noted = importer(
        tmp_path,
        """
        with forebay.ServicePool(max_size=2) as pool, pool.acquire(Closing) as original:
            own = original.register()
            with original.lease.fork(1) as [copy]:
                pid = copy.pid()
            assert ended(pid)
            assert os.path.isdir(own)
            open("notes", "a").write("copied\\n")
        """,
    )
    assert noted == ["close", "copied", "close", "atexit", "multiprocessing"]


def test_a_fork_for_each_lease_runs_no_handler_of_what_it_is_forked_from(tmp_path: Path) -> None:
    """The first lease removed what `__init__` had made for all of them."""
    noted = importer(
        tmp_path,
        """
        with forebay.ServicePool(max_size=1) as pool:
            for _ in range(2):
                with pool.acquire(Forked) as forked:
                    pid = forked.pid()
                    assert all(forked.there()), forked.there()
                assert ended(pid)
        """,
    )
    assert noted == ["close", "close"]


def test_a_close_that_exits_keeps_no_handler_from_running(tmp_path: Path) -> None:
    """`sys.exit()` at the end of a clean-up is a habit from scripts."""
    noted = importer(
        tmp_path,
        """
        with forebay.ServicePool(max_size=1) as pool, pool.acquire(Stubborn) as service:
            own = service.register()
        assert not os.path.isdir(own)
        """,
    )
    assert noted == ["close", "atexit", "multiprocessing"]
