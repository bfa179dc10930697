"""Each fault alone: it is injected into a real process, seen by it, and undone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.testing import chaos
from forebay.testing.experiment.clock import DAY_S, ClockJump, WallClock
from forebay.testing.experiment.disk import FullDisk, SmallDisk
from forebay.testing.experiment.limits import MemoryGroup, MemoryLimit, NoDescriptors
from forebay.testing.experiment.processes import Kill, Stop
from forebay.testing.experiment.proxy import FaultyProxy, Proxies
from forebay.testing.experiment.schedule import Planned
from tests.other_user import NOBODY, let_others_reach, needs_root
from tests.pool.processes import eventually

NOW = Planned(at=0.0, what="", lasts=1.0, choice=0.0, size=0.5)

ANSWERS = """
import sys
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class Program:
    """A process that evaluates what it is given, a line at a time."""

    def __init__(self, group: str = "", **environment: str) -> None:
        enter = f"open({group!r}, 'w').write(str(__import__('os').getpid()))" if group else ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{enter}\n{ANSWERS}"],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, expression: str) -> str:
        """What it answers."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    @property
    def targets(self) -> chaos.Targets:
        """It alone."""
        return chaos.processes("program", lambda: [self.process.pid])


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts programs, and ends them."""
    with contextlib.ExitStack() as stack:

        def start(group: str = "", **environment: str) -> Program:
            program = Program(group, **environment)
            stack.enter_context(program.process)
            stack.callback(program.process.kill)
            return program

        yield start


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_kill_names_its_victim_and_calls_what_comes_afterwards(
    start: Callable[..., Program],
) -> None:
    """The server is started again by what comes afterwards."""
    program = start()
    afterwards: list[str] = []
    injected = Kill(program.targets, afterwards=lambda: afterwards.append("started")).inject(NOW)
    assert program.process.wait(10) == -signal.SIGKILL
    assert injected is not None
    assert injected.text == f"program {program.process.pid}"
    injected.undo()
    assert afterwards == ["started"]
    assert Kill(program.targets).inject(NOW) is None


def test_a_stop_ends_when_it_is_undone(start: Callable[..., Program]) -> None:
    """No process stands still after an experiment."""
    program = start()
    injected = Stop(program.targets).inject(NOW)
    assert injected is not None
    assert eventually(lambda: _state(program.process.pid) == "T")
    injected.undo()
    assert program.ask("1 + 1") == "2"


def test_what_has_ended_meanwhile_is_undone_without_an_error(
    start: Callable[..., Program],
) -> None:
    """A process that was stopped may be killed before it is continued."""
    program = start()
    assert program.ask("1") == "1"
    undone = [Stop(program.targets).inject(NOW), NoDescriptors(program.targets).inject(NOW)]
    program.process.kill()
    program.process.wait()
    for injected in undone:
        assert injected is not None
        injected.undo()


def test_a_process_without_descriptors_opens_nothing_until_it_has_them_again(
    start: Callable[..., Program],
) -> None:
    """Its limit is what it was before."""
    program = start()
    opens = "__import__('os').open('/', 0)"
    limits = "__import__('resource').getrlimit(__import__('resource').RLIMIT_NOFILE)"
    before = program.ask(limits)
    injected = NoDescriptors(program.targets).inject(NOW)
    assert injected is not None
    assert program.ask(opens) == str(errno.EMFILE)
    injected.undo()
    assert program.ask(opens).isdigit()
    assert program.ask(limits) == before


@pytest.mark.needs("cc")
def test_a_clock_jumps_for_programs_under_it_alone(
    tmp_path: Path, start: Callable[..., Program]
) -> None:
    """Forward and back by days, and the monotonic clock stays."""
    clock = WallClock(tmp_path)
    assert ClockJump(clock).reason_not() is None
    program = start(**clock.environment)

    def ahead() -> float:
        return float(program.ask("__import__('time').time()")) - time.time()

    def monotonic() -> float:
        return float(program.ask("__import__('time').monotonic()")) - time.monotonic()

    assert abs(ahead()) < 60
    for choice, sign in ((0.1, 1), (0.9, -1)):
        far = ClockJump(clock).inject(NOW._replace(size=0.999, choice=choice))
        assert far is not None
        assert sign * ahead() > 9 * DAY_S
        assert abs(monotonic()) < 60
        far.undo()
        assert abs(ahead()) < 60


def test_without_a_compiler_the_clock_is_told_not_to_jump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table says what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    clock = WallClock(tmp_path)
    assert "cc, which is not installed" in str(ClockJump(clock).reason_not())
    assert clock.environment == {}


def _full_disk(directory: Path, user: int) -> str:
    """What a program finds that has one thread, which no other test has started anything in."""
    command = [
        sys.executable,
        "-m",
        "tests.testing.experiment.full_disk",
        str(directory),
        str(user),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert not done.stderr, done.stderr
    return done.stdout


@needs_root
def test_a_small_disk_is_full_and_seen_by_nobody_else(tmp_path: Path) -> None:
    """It is mounted for the experiment and its children, and gone with them."""
    told = _full_disk(tmp_path, 0)
    if told.startswith("this user may mount no small file system"):
        pytest.skip("mounting a small file system needs root")
    assert told == "full"
    assert list(tmp_path.iterdir()) == []
    assert not tmp_path.is_mount()


@needs_root
def test_an_ordinary_user_has_a_small_disk_or_is_told_why_not(tmp_path: Path) -> None:
    """By a user namespace; where the kernel refuses one, the table says so."""
    let_others_reach(tmp_path)
    os.chown(tmp_path, NOBODY, NOBODY)
    told = _full_disk(tmp_path, NOBODY)
    assert told == "full" or told.startswith("this user may mount no small file system")


def test_a_process_with_threads_mounts_nothing(tmp_path: Path) -> None:
    """Its other threads would stay in the old namespace."""
    over = socket.socketpair()
    thread = threading.Thread(target=over[0].recv, args=(1,))
    thread.start()
    try:
        small = SmallDisk(tmp_path)
        assert "one thread" in str(FullDisk(small).reason_not())
    finally:
        over[1].send(b".")
        thread.join()
        for end in over:
            end.close()


def test_a_memory_limit_kills_what_needs_more(start: Callable[..., Program]) -> None:
    """The kernel ends a process of the group, and the limit is gone afterwards."""
    with contextlib.closing(MemoryGroup()) as group:
        limit = MemoryLimit(group)
        if group.procs is None:
            assert "control group" in str(limit.reason_not()) or "memory" in str(group.refusal)
            pytest.skip(f"{group.refusal}")
        program = start(group=str(group.procs))
        assert program.ask("1") == "1"
        injected = limit.inject(NOW)
        assert injected is not None
        assert program.ask("len(b'x' * 100_000_000)") == ""
        assert program.process.wait(10) == -signal.SIGKILL
        injected.undo()
        another = start(group=str(group.procs))
        assert another.ask("len(b'x' * 100_000_000)") == "100000000"
        another.process.kill()
        another.process.wait()


@contextlib.contextmanager
def echoing(path: Path) -> Iterator[None]:
    """A socket that sends back what it gets."""
    loop = asyncio.new_event_loop()
    over = asyncio.Event()
    ready = threading.Event()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def serve() -> None:
        async with await asyncio.start_unix_server(echo, path):
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize(("choice", "way"), [(0.0, "cut"), (0.4, "hold"), (0.8, "delay")])
def test_a_faulty_proxy_cuts_holds_or_delays_until_it_is_undone(
    tmp_path: Path, choice: float, way: str
) -> None:
    """Connections made afterwards are as good as without a proxy."""
    behind, front = tmp_path / "behind", tmp_path / "front"
    with echoing(behind), contextlib.closing(Proxies({front: behind})) as proxies:
        assert _through(front, 10_000) == 10_000
        injected = FaultyProxy(proxies).inject(NOW._replace(choice=choice))
        assert injected is not None
        assert injected.text.startswith(way)
        began = time.monotonic()
        arrived = _through(front, 10_000, timeout=0.5)
        if way == "delay":
            assert arrived == 10_000
        else:
            assert arrived < 10_000
            assert (time.monotonic() - began >= 0.5) == (way == "hold")
        injected.undo()
        assert _through(front, 10_000) == 10_000


def _through(path: Path, count: int, timeout: float = 10.0) -> int:
    """How many bytes come back."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(str(path))
        arrived = 0
        with contextlib.suppress(OSError):
            client.sendall(bytes(count))
            while arrived < count and (data := client.recv(65536)):
                arrived += len(data)
        return arrived
