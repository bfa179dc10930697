from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.testing import chaos
from forebay.testing._plan import decisions
from tests.other_user import as_nobody, needs_root
from tests.pool.processes import alive, eventually, parent, template_of
from tests.pool.scripts import ROOT
from tests.pool.services import Echo

SLEEP = ["sleep", "3600"]
HOLDS_A_SERVICE = """
import signal
import forebay
from tests.pool.services import Echo
with forebay.acquire(Echo) as echo:
    print(echo.lease.pid, flush=True)
    signal.pause()
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody would miss."""
    with subprocess.Popen(SLEEP) as process:
        yield process
        process.kill()


@pytest.fixture
def pool() -> Iterator[forebay.ServicePool]:
    with forebay.ServicePool(max_size=2, name="chaos") as made:
        yield made


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def only(process: subprocess.Popen[bytes]) -> chaos.Targets:
    return chaos.processes("sleeper", lambda: [process.pid])


def test_a_seed_decides_everything() -> None:
    """A run that failed can be run again."""

    def first(seed: int) -> list[object]:
        plan = decisions(seed, actions=("kill", "stop", "delay"), rate=10, max_delay=0.1)
        return list(itertools.islice(plan, 100))

    assert first(7) == first(7)
    assert first(7) != first(8)


def test_the_rate_is_strikes_per_second() -> None:
    """What a user asks for is about what happens."""
    plan = decisions(1, actions=("kill",), rate=50, max_delay=0.1)
    seconds = sum(decision.after for decision in itertools.islice(plan, 5_000))
    assert 90 < seconds < 110


@pytest.mark.parametrize(
    "wrong", [{"actions": ("kil",)}, {"actions": ()}, {"rate": 0.0}, {"max_delay": -1.0}]
)
def test_a_wrong_argument_is_told_at_once(wrong: dict[str, object]) -> None:
    """A storm that could never strike would look like a pool that stands everything."""
    with pytest.raises(forebay.ConfigError):
        chaos.storm(targets=chaos.Targets(), **wrong)  # type: ignore[arg-type]


def test_kill_kills_and_is_logged(sleeper: subprocess.Popen[bytes]) -> None:
    """The log names what was done to whom."""
    with chaos.storm(targets=only(sleeper), rate=1_000, seed=1) as storm:
        assert sleeper.wait(5) == -signal.SIGKILL
    assert [(strike.action, strike.kind, strike.pid) for strike in storm.log] == [
        ("kill", "sleeper", sleeper.pid)
    ]
    assert storm.counts() == {"sleeper kill": 1}


def test_what_was_stopped_goes_on_after_the_storm(sleeper: subprocess.Popen[bytes]) -> None:
    """A test that ends leaves no process standing still."""
    with chaos.storm(targets=only(sleeper), actions=("stop",), rate=1_000, seed=1):
        assert eventually(lambda: state(sleeper.pid) == "T")
    assert eventually(lambda: state(sleeper.pid) == "S")


def test_continue_wakes_only_what_was_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    """Stopping and continuing take turns, whatever the seed."""
    actions: tuple[chaos.Action, ...] = ("stop", "continue")
    with chaos.storm(targets=only(sleeper), actions=actions, rate=1_000, seed=3) as storm:
        assert eventually(lambda: len(storm.log) > 10)
    done = [strike.action for strike in storm.log]
    assert done == [actions[number % 2] for number in range(len(done))]


def test_a_delay_ends_by_itself(sleeper: subprocess.Popen[bytes]) -> None:
    """A delayed process is slow, not dead."""
    delays = chaos.storm(
        targets=only(sleeper), actions=("delay",), rate=100, seed=1, max_delay=0.02
    )
    with delays as storm:
        assert eventually(lambda: len(storm.log) >= 5)
        assert eventually(lambda: state(sleeper.pid) == "S")


def test_the_parts_of_a_pool_are_told_apart(pool: forebay.ServicePool) -> None:
    """Who wants to spare the keeper must be able to."""
    with forebay.ServicePool(max_size=1) as other, other.acquire(Echo), pool.acquire(Echo) as echo:
        service = echo.lease.pid
        assert [each.pid for each in chaos.services(pool).now()] == [service]
        assert [each.pid for each in chaos.templates(pool).now()] == [template_of(service)]
        assert [each.pid for each in chaos.keeper(pool).now()] == [parent(service)]
        everything = chaos.services(pool) | chaos.templates(pool) | chaos.keeper(pool)
        assert [each.kind for each in everything.now()] == ["keeper", "service", "template"]
        assert len(chaos.keeper(os.getpid()).now()) == 2


def test_a_program_is_a_service_too(pool: forebay.ServicePool) -> None:
    """Not only Python classes die."""
    program = 'printf "!" >&"$1"; exec sleep 3600'
    with pool.acquire(forebay.Command(["sh", "-c", program, "sh", "{fd}"])) as backend:
        assert [each.pid for each in chaos.services(pool).now()] == [backend.lease.pid]


def test_the_processes_of_another_program_can_be_struck() -> None:
    """A client that uses a pool is stormed from outside, so that it can be killed itself."""
    holds = [sys.executable, "-c", HOLDS_A_SERVICE]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(holds, env=environment, stdout=subprocess.PIPE) as client:
        try:
            assert client.stdout is not None
            service = int(client.stdout.readline())
            assert [each.pid for each in chaos.services(client.pid).now()] == [service]
            with chaos.storm(targets=chaos.keeper(client.pid), rate=1_000, seed=1):
                assert eventually(lambda: not alive(service))
        finally:
            client.kill()
    assert eventually(lambda: chaos.keeper(client.pid).now() == [])


def test_a_process_with_a_reused_number_is_not_struck(sleeper: subprocess.Popen[bytes]) -> None:
    """A signal meant for a dead service reaches no stranger."""
    (found,) = only(sleeper).now()
    earlier = found._replace(started=found.started - 1)
    mistaken = chaos.Targets(lambda: [earlier])
    with chaos.storm(targets=mistaken, rate=1_000, seed=1) as storm:
        assert not eventually(lambda: not alive(sleeper.pid), 0.1)
    assert storm.log == []


def test_a_failure_under_a_storm_tells_its_seed(sleeper: subprocess.Popen[bytes]) -> None:
    """Without the seed a red run cannot be repeated."""

    def answer_wrongly() -> None:
        with chaos.storm(targets=only(sleeper), rate=1_000):
            sleeper.wait(5)
            raise ValueError("wrong answer")

    with pytest.raises(ValueError, match="wrong answer") as caught:
        answer_wrongly()
    (note,) = caught.value.__notes__
    assert note.startswith("chaos: seed=")
    assert f"kill sleeper {sleeper.pid}" in note


def test_a_storm_whose_targets_cannot_be_found_fails() -> None:
    """A storm that broke is not mistaken for one that was stood."""

    def broken() -> list[int]:
        raise LookupError("who?")

    storm = chaos.storm(targets=chaos.processes("nobody", broken), rate=1_000, seed=1)
    with pytest.raises(LookupError, match="who"), storm:
        assert eventually(lambda: storm._failure is not None)


def test_nothing_left_is_content_with_a_pool_that_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pool makes goes with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def use_a_pool() -> None:
        with forebay.ServicePool(max_size=1) as pool, pool.acquire(Echo) as echo:
            echo.temporary_file()
            assert list(tmp_path.iterdir())

    with chaos.nothing_left(folders=[tmp_path]):
        use_a_pool()


def test_nothing_left_names_a_descriptor_and_a_file(tmp_path: Path) -> None:
    """Who leaks is told what and where."""
    with (
        pytest.raises(AssertionError) as caught,
        chaos.nothing_left(folders=[tmp_path], timeout=0.0),
    ):
        descriptor = os.open(tmp_path / "forgotten", os.O_CREAT)
    os.close(descriptor)
    assert f"descriptor {descriptor}: {tmp_path}/forgotten" in str(caught.value)
    assert f"file {tmp_path}/forgotten" in str(caught.value)


def test_nothing_left_counts_no_directory_of_another_program() -> None:
    """Two programs that test beside each other share the directory of temporary files."""
    with chaos.nothing_left(timeout=0.0):
        theirs = tempfile.mkdtemp(prefix=".forebay-keeper-1-executor-")
    os.rmdir(theirs)
    with pytest.raises(AssertionError) as caught, chaos.nothing_left(timeout=0.0):
        ours = tempfile.mkdtemp(prefix=f".forebay-keeper-{os.getpid()}-executor-")
    os.rmdir(ours)
    assert ours in str(caught.value)


@needs_root
def test_nothing_left_counts_nothing_of_another_user() -> None:
    """Only root makes files of others."""
    theirs = Path(tempfile.gettempdir()) / "forebay-of-another-user"
    begun, ended = os.pipe(), os.pipe()

    def make() -> None:
        os.read(begun[0], 1)
        theirs.touch()
        os.write(ended[1], b".")

    def look() -> str:
        with chaos.nothing_left(timeout=0.0):
            os.write(begun[1], b".")
            os.read(ended[0], 1)
        return "content"

    maker = threading.Thread(target=make)
    maker.start()
    try:
        assert as_nobody(look) == "content"
    finally:
        os.write(begun[1], b".")  # also where the child did not come so far
        maker.join()
        theirs.unlink()
        for descriptor in (*begun, *ended):
            os.close(descriptor)


def leave_an_orphan(orphans: list[int]) -> None:
    """Leave a process that has lost its parent, where that is looked for."""
    script = 'sleep 3600 >/dev/null 2>&1 & echo "$!"'
    with chaos.nothing_left(timeout=0.0):
        told = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
        orphans.append(int(told.stdout))


def test_nothing_left_finds_a_process_that_lost_its_parent() -> None:
    """An orphan is no descendant any more, and is found all the same."""
    orphans: list[int] = []
    with pytest.raises(AssertionError) as caught:
        leave_an_orphan(orphans)
    assert parent(orphans[0]) != os.getpid()
    os.kill(orphans[0], signal.SIGKILL)
    assert f"process {orphans[0]}: sleep" in str(caught.value)


def test_nothing_left_can_be_nested() -> None:
    """A program that checks itself can be started by a test that checks it."""
    orphans: list[int] = []

    def check_twice() -> None:
        with chaos.nothing_left(timeout=0.0), contextlib.suppress(AssertionError):
            leave_an_orphan(orphans)

    with pytest.raises(AssertionError, match="sleep"):
        check_twice()
    os.kill(orphans[0], signal.SIGKILL)


def test_nothing_left_waits_for_what_is_about_to_go() -> None:
    """What ends a moment later is not left."""
    with chaos.nothing_left():
        process = subprocess.Popen(["sleep", "0.05"])
        began = time.monotonic()
        process.poll()
    assert time.monotonic() - began < 5
    process.wait()
