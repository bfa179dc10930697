from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.pool.conftest import PoolOf
from tests.pool.limited import (
    Advised,
    Confined,
    ConfinedPerLease,
    Files,
    FilesOnce,
    Foreign,
    Half,
    Hasty,
    Hog,
    Memory,
    Processes,
)
from tests.pool.processes import alive, descendants, eventually, parent
from tests.pool.scripts import ECHO, ROOT, python
from tests.pool.services import Echo

MEBIBYTE = 1 << 20


def unified() -> Path | None:
    """The tree of cgroups of version 2, where it can be written."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        mount = Path(place.split()[4])
        if kind.startswith("cgroup2 ") and os.access(mount / "cgroup.procs", os.W_OK):
            return mount
    return None


TREE = unified()
needs_tree = pytest.mark.skipif(TREE is None, reason="no cgroup of version 2 can be written here")


def offers(controller: str) -> bool:
    """Whether services can have a controller here: the root's children can."""
    if TREE is None:
        return False
    return controller in (TREE / "cgroup.controllers").read_text().split()


def needs(controller: str) -> pytest.MarkDecorator:
    reason = f"the {controller} controller is not in a writable tree of version 2"
    return pytest.mark.skipif(not offers(controller), reason=reason)


def left_in_tree() -> list[str]:
    """Cgroups of keepers that have ended."""
    made = (path for path in cgroups() if path.name.startswith("forebay-keeper-"))
    return sorted(str(path) for path in made if not alive(int(path.name.split("-")[2])))


def groups_of(keeper: int) -> list[Path]:
    """The cgroups of a keeper's services."""
    return [path for path in cgroups() if path.parent.name.startswith(f"forebay-keeper-{keeper}-")]


def cgroups() -> Iterator[Path]:
    """All that there are, and some that go meanwhile."""
    if TREE is not None:
        yield from (Path(path) for path, _, _ in os.walk(TREE))


@pytest.fixture
def resource_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[forebay.ServicePool]:
    """A pool whose keeper makes no cgroup."""
    monkeypatch.setenv("FOREBAY_POOL_CGROUP", "off")
    with forebay.ServicePool(max_size=2, name="test") as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """What a keeper made in the tree goes with it."""
    before = left_in_tree()
    yield
    assert eventually(lambda: set(left_in_tree()) <= set(before))


def test_memory_is_limited_without_a_cgroup(resource_limits: forebay.ServicePool) -> None:
    """A call that needs too much fails by MemoryError, and the service lives on."""
    with resource_limits.acquire(Memory) as hog:
        assert hog.grow(64) == 64
        with pytest.raises(MemoryError) as caught:
            hog.grow(512)
        assert isinstance(caught.value, forebay.RemoteError)
        assert hog.grow(64) == 128
        pid = hog.lease.pid
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "500\n"
    with resource_limits.acquire(Memory) as again:
        assert again.lease.pid == pid


def test_what_the_template_has_does_not_count(resource_limits: forebay.ServicePool) -> None:
    """The limit is what a service may use beyond its imports, as a cgroup would count it."""
    with resource_limits.acquire(Memory) as hog:
        soft, hard = hog.resource_limit("RLIMIT_DATA")
    assert soft == hard
    assert 256 * MEBIBYTE < soft < 512 * MEBIBYTE


@needs("memory")
def test_the_kernel_ends_a_hog_and_the_cause_is_told(pool: forebay.ServicePool) -> None:
    """Whoever waits learns at once: out of memory, how much was used, how much was allowed."""
    with pool.acquire(Memory) as hog:
        hog.grow(64)
        with pytest.raises(forebay.DiedError, match="want of memory") as caught:
            hog.grow(512)
    assert caught.value.cause == "out_of_memory"
    assert caught.value.limit_bytes == 256 * MEBIBYTE
    peak = caught.value.peak_bytes
    assert peak is None or 200 * MEBIBYTE < peak <= 256 * MEBIBYTE
    assert pool.stats()["deaths"] == {"out_of_memory": 1}


@needs("cpu")
def test_processor_time_is_limited(pool: forebay.ServicePool) -> None:
    """A service that computes takes no more than its share."""
    with pool.acquire(Half) as hog:
        assert hog.spin(1.0) < 0.7


@needs("pids")
def test_processes_are_limited(pool: forebay.ServicePool) -> None:
    """A fork bomb stops at its limit, and all of it ends with the service."""
    with pool.acquire(Processes) as hog:
        assert hog.fork_many(1000) == 15
        bomb = descendants(hog.lease.pid)
        assert len(bomb) == 15
    assert eventually(lambda: not any(map(alive, bomb)))


@pytest.mark.parametrize("service", [Half, Processes])
def test_what_cannot_be_enforced_is_refused(
    resource_limits: forebay.ServicePool, service: type[Hog]
) -> None:
    """Nobody believes in a limit that is not there; the message says how to get one."""
    with (
        pytest.raises(forebay.ConfigError, match=r"cannot be enforced here.*systemd-run.*advisory"),
        resource_limits.acquire(service),
    ):
        pass


def test_advice_is_followed_as_far_as_it_goes(resource_limits: forebay.ServicePool) -> None:
    """The same service runs on a laptop and in a cluster."""
    with resource_limits.acquire(Advised) as hog:
        assert hog.fork_many(20) == 20
        with pytest.raises(MemoryError):
            hog.grow(512)


def test_open_files_are_limited(pool: forebay.ServicePool) -> None:
    """A leak of descriptors is the service's own trouble, and soon seen."""
    with pool.acquire(Files) as hog:
        assert hog.open_many(40) == 40
        with pytest.raises(OSError, match="Too many open files"):
            hog.open_many(64)
        assert hog.resource_limit("RLIMIT_CORE") == (0, 0)


def test_without_limits_a_service_is_as_its_client() -> None:
    """What the keeper needs for itself reaches nobody, and no cgroup is made."""
    with forebay.ServicePool(max_size=1) as pool, pool.acquire(Hog) as hog:
        for name in ("RLIMIT_NOFILE", "RLIMIT_DATA", "RLIMIT_CORE", "RLIMIT_NPROC"):
            assert hog.resource_limit(name) == resource.getrlimit(getattr(resource, name))
        assert hog.cgroup() == own_cgroup()
        assert groups_of(parent(hog.lease.pid)) == []


def own_cgroup() -> str:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next((line[3:] for line in lines if line.startswith("0::")), "")


def test_a_constructor_runs_under_the_limits(pool: forebay.ServicePool) -> None:
    """Nothing of the user's runs before the process is confined."""
    with pool.acquire(Confined) as service:
        cgroup, open_files = service.birth()
        assert open_files == (99, 99)
        assert cgroup == service.cgroup()
        if TREE is not None:
            assert "/forebay-keeper-" in cgroup


def test_processes_forked_ahead_and_copies_are_limited_too(pool_of: PoolOf) -> None:
    """However a service came to be, it is confined before it is used."""
    with pool_of(max_size=4, spares=1) as pool, contextlib.ExitStack() as leases:
        served = [leases.enter_context(pool.acquire(Confined)) for _ in range(4)]
        served += leases.enter_context(served[0].lease.fork(2))
        groups = {service.cgroup() for service in served}
        assert [service.resource_limit("RLIMIT_NOFILE") for service in served] == [(99, 99)] * 6
        assert len(groups) == (1 if TREE is None else 6)


def test_a_program_runs_under_its_limits(pool: forebay.ServicePool, tmp_path: Path) -> None:
    """A foreign program is held to the same, and limits are part of what is asked for."""
    tell = """
        import resource
        print(resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)
        print(open("/proc/self/cgroup").read(), flush=True)
    """ + ECHO.replace("\n    ", "\n        ")
    loose = python(tmp_path, tell)
    tight = forebay.Command(loose.arguments, limits=forebay.Limits(open_files=88))
    with pool.acquire(loose) as program:
        pid = program.lease.pid
    with pool.acquire(tight) as program:
        assert program.lease.pid != pid
        assert "(88, 88)" in program.lease.stderr
        assert TREE is None or "/forebay-keeper-" in program.lease.stderr


@needs_tree
def test_what_left_its_group_ends_with_its_service(pool: forebay.ServicePool) -> None:
    """A process in a session of its own is out of its group, and still in the cgroup."""
    with pool.acquire(Files) as other:  # is left, so that orphans are not ended as such
        with pool.acquire(FilesOnce) as hog:
            apart = hog.spawn_apart()
        assert eventually(lambda: not alive(apart))
        assert eventually(lambda: len(groups_of(parent(other.lease.pid))) == 1)


@needs_tree
def test_what_a_killed_keeper_left_goes_with_the_next(pool: forebay.ServicePool) -> None:
    """Its cgroup and whoever is in it do not stay for ever."""
    with pool.acquire(Files) as hog:
        keeper, apart = parent(hog.lease.pid), hog.spawn_apart()
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(forebay.DiedError):
            hog.hang()
    assert alive(apart)
    assert len(groups_of(keeper)) == 1
    with pool.acquire(Files):
        assert eventually(lambda: not alive(apart))
        assert eventually(lambda: groups_of(keeper) == [])


@needs_tree
def test_nothing_is_left_of_a_killed_client(tmp_path: Path) -> None:
    """The keeper is the last one out: cgroups and directories go with it."""
    program = """
import sys, forebay
from tests.pool.limited import Files
pool = forebay.ServicePool()
service = pool.acquire(Files).__enter__()
print(service.spawn_apart(), service.lease.directory, flush=True)
sys.stdin.read()
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        apart, directory = client.stdout.readline().split()
        client.kill()
    assert eventually(lambda: not alive(int(apart)))
    assert eventually(lambda: not os.path.exists(directory) and os.listdir(tmp_path) == [])


@needs_tree
def test_a_cgroup_that_was_delegated_is_used_without_root() -> None:
    """A user's own cgroup is found by itself, and nothing is made outside of it."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    assert TREE is not None
    mine = TREE / f"forebay-test-{os.getpid()}"
    mine.mkdir()
    nobody = 65534
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(mine / name, nobody, nobody)
    directory = tempfile.mkdtemp(dir="/dev/shm")
    os.chown(directory, nobody, nobody)
    program = """
import forebay
from tests.pool.limited import Files
with forebay.ServicePool() as pool, pool.acquire(Files) as service:
    print(service.cgroup(), service.open_many(20))
"""

    def become() -> None:
        (mine / "cgroup.procs").write_text("0")
        os.setgroups([])
        os.setgid(nobody)
        os.setuid(nobody)

    environment = os.environ | {"PYTHONPATH": f"{ROOT}/python:{ROOT}", "TMPDIR": directory}
    interpreter = "/usr/bin/python3"  # the one of a virtual environment may be root's alone
    try:
        ended = subprocess.run(
            [interpreter, "-c", program],
            env=environment,
            preexec_fn=become,
            cwd="/",
            capture_output=True,
            text=True,
        )
        if "No module named" in ended.stderr or "Permission denied" in ended.stderr:
            pytest.skip("another user cannot run this checkout")
        assert ended.stderr == ""
        cgroup, opened = ended.stdout.split()
        assert cgroup.startswith(f"/{mine.name}/forebay-keeper-")
        assert opened == "20"
        assert os.listdir(directory) == []
    finally:
        shutil.rmtree(directory)
        for left in sorted(mine.rglob("*/"), reverse=True):
            left.rmdir()
        mine.rmdir()


def test_a_directory_that_is_no_cgroup_is_refused(
    pool_of: PoolOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names a cgroup is told that it cannot be used, rather than left without limits."""
    monkeypatch.setenv("FOREBAY_POOL_CGROUP", str(tmp_path))
    with (
        pool_of(max_size=1) as pool,
        pytest.raises(forebay.DiedError, match="FOREBAY_POOL_CGROUP") as caught,
        pool.acquire(Files),
    ):
        pass
    assert caught.value.cause == "not_started"


def test_limits_are_part_of_what_makes_services_interchangeable(
    pool: forebay.ServicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets a service that was started with other limits than it is asked for."""
    with pool.acquire(Files.spec()) as files:
        pid = files.lease.pid
    monkeypatch.setattr(Files, "limits", forebay.Limits(open_files=65))
    with pool.acquire(Files.spec()) as files:
        assert files.lease.pid != pid
        assert files.resource_limit("RLIMIT_NOFILE") == (65, 65)


def test_what_a_factory_makes_is_limited(pool: forebay.ServicePool) -> None:
    """Any object can be held to limits, and an attribute of its own of that name is none."""
    made = forebay.factory(Foreign)
    with pool.acquire(made) as foreign:
        pid, (soft, _) = foreign.lease.pid, foreign.open_files()
        assert soft != 77
    limited = made.limited(forebay.Limits(open_files=77, call_timeout=1))
    with pool.acquire(limited) as foreign:
        assert foreign.lease.pid != pid
        assert foreign.open_files() == (77, 77)
        with pytest.raises(forebay.DeadlineError):
            foreign.hang()


def test_a_service_forked_per_lease_is_limited(pool: forebay.ServicePool) -> None:
    """Its constructor ran in the template, which nothing limits; each of its forks is confined."""
    with pool.acquire(ConfinedPerLease) as one, pool.acquire(ConfinedPerLease) as other:
        cgroup, (soft, _) = one.birth()
        assert soft != 99
        assert "/forebay-keeper-" not in cgroup
        for service in (one, other):
            assert service.resource_limit("RLIMIT_NOFILE") == (99, 99)
            assert TREE is None or "/forebay-keeper-" in service.cgroup()
        assert TREE is None or one.cgroup() != other.cgroup()


def test_calls_of_many_have_their_time(pool: forebay.ServicePool) -> None:
    """A batch of calls is no way round the time of a call."""
    with pool.acquire(Hasty) as hasty, pool.acquire(Files) as files:
        calls = [(hasty, "hang", ()), (files, "grow", (1,))]
        late, grown = forebay.pool.call_many(calls, return_errors=True)
        assert isinstance(late, forebay.DeadlineError)
        assert grown == 1
        with pytest.raises(forebay.DiedError, match="call_timeout"):
            hasty.hang()


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "1 GBit"},
        {"memory": 1000},
        {"cpu": 0.0},
        {"cpu": float("inf")},
        {"open_files": 3},
        {"processes": 0},
        {"processes": True},
        {"call_timeout": 0},
    ],
    ids=str,
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    """A mistake is told where it is made."""
    with pytest.raises(forebay.ConfigError):
        forebay.Limits(**wrong)  # type: ignore[arg-type]


def test_a_leak_ends_where_the_pool_limits_memory(pool_of: PoolOf) -> None:
    """A service that has grown is replaced while it is idle, and says so in the counts."""
    with pool_of(max_size=1, max_memory="64MiB") as pool:
        with pool.acquire(Hog) as hog:
            pid = hog.lease.pid
            hog.grow(128)
            time_of_growth = time.monotonic()
        with pool.acquire(Echo):  # a small one is left alone
            pass
        assert eventually(lambda: not alive(pid), 10)
        assert time.monotonic() - time_of_growth < 10
        with pool.acquire(Hog) as hog:
            assert hog.lease.pid != pid


def test_a_leased_service_that_has_grown_is_not_lent_again() -> None:
    """Its holder is not disturbed; the next one gets another."""
    with forebay.ServicePool(max_size=1, max_memory="64MiB") as pool:
        with pool.acquire(Hog) as hog:
            pid = hog.lease.pid
            hog.grow(128)
            # The keeper has looked once it has told: its word comes with the next drive.
            assert eventually(lambda: heavy(pool), 10)
            hog.shrink()
            assert hog.grow(1) == 1
        assert eventually(lambda: pool.stats()["deaths"] == {"memory": 1})
        with pool.acquire(Hog) as hog:
            assert hog.lease.pid != pid


def heavy(pool: forebay.ServicePool) -> bool:
    """Whether the pool was told of a service that has grown."""
    return pool.core.heavy() > 0
