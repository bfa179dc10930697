from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

import forebay
from forebay.pool import Accepting, Http, Line, PortFile
from tests.pool.conftest import PoolOf, start_is_under_way
from tests.pool.processes import alive, eventually

LISTEN = Path(__file__).parent / "backends/listen.py"
PROGRAM = (sys.executable, "-I", "-S", str(LISTEN))
SAID = "serving on port 4711 now"

READY: dict[str, tuple[list[str], Any]] = {
    "line": (["none", "--say", SAID], Line(r"on port (?P<port>\d+)")),
    "port file": (["none", "x", "4711", "--file", "{port_file}"], PortFile()),
    "unix socket": (["unix", "{socket}"], Accepting()),
    "port": (["tcp", "127.0.0.1", "{port}"], Accepting()),
    "http": (["http", "127.0.0.1", "{port}"], Http("/healthz")),
}
"""Arguments of the program, and how it says that it is ready."""


@pytest.fixture(params=list(READY))
def kind(request: pytest.FixtureRequest) -> str:
    """Each way of saying it."""
    return str(request.param)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Holds a program back until it is opened."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def command(kind: str, *more: str, **options: Any) -> forebay.Command:
    """The program that says so."""
    arguments, ready = READY[kind]
    return forebay.Command([*PROGRAM, *arguments, *more], ready=ready, **options)


def open_gate(gate: Path) -> None:
    """Let the program go on."""
    with open(gate, "w"):
        pass


def test_a_program_is_lent_once_it_has_said_that_it_is_ready(
    pool: forebay.ServicePool, kind: str, gate: Path
) -> None:
    """However it says so: nobody gets it before, and everybody gets it then."""
    held_back = command(kind, "--gate", str(gate))
    with pytest.raises(forebay.DeadlineError), pool.acquire(held_back, timeout=0.2):
        pass
    opener = threading.Thread(target=open_gate, args=(gate,))
    opener.start()
    with pool.acquire(held_back, timeout=10) as backend:
        assert alive(backend.lease.pid)
        assert backend.started.pid == backend.lease.pid
        pid = backend.lease.pid
    opener.join()
    with pool.acquire(held_back) as backend:
        assert backend.lease.pid == pid
    assert pool.stats()["starts"] == 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_program_becomes_ready_for_an_event_loop(
    pool: forebay.ServicePool, kind: str, run: Callable[..., None]
) -> None:
    """The same on a loop, which is not blocked meanwhile."""

    async def main() -> None:
        async with pool.acquire(command(kind), timeout=10) as backend:
            assert alive(backend.lease.pid)

    run(main(), debug=True)


def test_a_program_that_ends_before_it_is_ready_is_told_with_its_words(
    pool: forebay.ServicePool, kind: str
) -> None:
    """At once, with exit code and last output, not after the timeout."""
    began = time.monotonic()
    raising = pytest.raises(forebay.DiedError, match="no licence left")
    with raising as caught, pool.acquire(command(kind, "--exit", "7"), timeout=30):
        pass
    assert (caught.value.cause, caught.value.exit_code) == ("exit", 7)
    assert time.monotonic() - began < 10
    assert pool.stats()["live"] == 0


def test_a_program_that_is_never_ready_is_ended(pool_of: PoolOf, kind: str, gate: Path) -> None:
    """`start_timeout` ends it, however its readiness is seen."""
    with pool_of(max_size=1, start_timeout=0.3) as pool:
        raising = pytest.raises(forebay.DiedError, match="not ready in time")
        with raising as caught, pool.acquire(command(kind, "--gate", str(gate)), timeout=20):
            pass
        assert caught.value.cause == "start_deadline"
        assert pool.stats()["live"] == 0


def test_a_start_that_is_cancelled_goes_to_whoever_comes_next(
    pool: forebay.ServicePool, kind: str, gate: Path
) -> None:
    """A cancelled caller costs nobody a second start, and leaks nothing."""
    held_back = command(kind, "--gate", str(gate))

    async def enter() -> None:
        async with pool.acquire(held_back):
            raise AssertionError("it cannot be ready")

    async def main() -> None:
        task = asyncio.create_task(enter())
        assert await asyncio.to_thread(eventually, lambda: start_is_under_way(pool))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    opener = threading.Thread(target=open_gate, args=(gate,))
    opener.start()
    with pool.acquire(held_back, timeout=10) as backend:
        assert alive(backend.lease.pid)
    opener.join()
    assert pool.stats()["starts"] == 1


def test_a_program_that_is_kept_ready_outlives_its_start_deadline(
    pool_of: PoolOf, gate: Path
) -> None:
    """Though nobody has looked yet whether its socket accepts; the first caller does."""
    with pool_of(max_size=3, start_timeout=0.3) as pool:
        held_back = command("unix socket", "--gate", str(gate))
        pool.warm(held_back)
        assert eventually(lambda: pool.stats()["settling"] + pool.stats()["idle"] == 1)
        pool.warm(held_back, 0)  # no other is started when this one is taken
        later = command("line", "--gate", str(gate))  # its deadline comes after that of the other
        with pytest.raises(forebay.DiedError, match="not ready in time"), pool.acquire(later):
            pass
        opener = threading.Thread(target=open_gate, args=(gate,))
        opener.start()
        with pool.acquire(held_back, timeout=10):
            assert pool.stats()["starts"] == 2, "it was lent, and no other started"
        opener.join()


def test_the_ready_line_tells_the_port(pool: forebay.ServicePool) -> None:
    """What the program chose itself need not be guessed."""
    with pool.acquire(command("line")) as backend:
        assert (backend.started.text, backend.started.port) == (SAID, 4711)
        assert backend.started.match is not None
        assert backend.started.address == "127.0.0.1:4711"
        assert SAID in backend.lease.stderr  # and it is still part of what was written


def test_the_port_file_tells_the_port(pool: forebay.ServicePool) -> None:
    """As CompilerGym's services do it; it is neither polled for nor looked for elsewhere."""
    with pool.acquire(command("port file")) as backend:
        started = backend.started
        assert (started.text, started.port) == ("4711", 4711)
        assert Path(started.directory, "port").read_text() == "4711"


def test_a_private_directory_is_private_and_goes_with_the_program(
    pool: forebay.ServicePool,
) -> None:
    """Nobody else can reach the socket, whatever mode the program gave it."""
    with pool.acquire(command("unix socket")) as backend:
        path = backend.started.socket_path
        assert path is not None
        directory = Path(path).parent
        assert str(directory) == backend.started.directory
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"hello")
            assert connection.recv(5) == b"HELLO"
        backend.lease.discard()
    assert eventually(lambda: not directory.exists())


def test_a_program_on_loopback_is_reached_by_its_port(pool: forebay.ServicePool) -> None:
    """The port is chosen for it, and it is the program that listens there."""
    with pool.acquire(command("port")) as backend:
        port = backend.started.port
        with socket.create_connection(("127.0.0.1", port or 0)) as connection:
            connection.sendall(b"hello")
            assert connection.recv(5) == b"HELLO"


def test_a_program_that_listens_on_every_interface_is_refused(pool: forebay.ServicePool) -> None:
    """A typo in the host does not open a door to other machines."""
    exposed = forebay.Command([*PROGRAM, "tcp", "0.0.0.0", "{port}"])
    with pytest.raises(forebay.ConfigError, match="other machines"), pool.acquire(exposed):
        pass
    assert eventually(lambda: pool.stats()["live"] == 0)


def test_somebody_else_on_the_port_is_not_taken_for_the_program(
    pool: forebay.ServicePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port that was taken meanwhile gives an error, never a stranger's service."""
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        monkeypatch.setattr("forebay.pool.lend.kind.choose_port", lambda: port)
        raising = pytest.raises(forebay.DiedError, match="Address already in use")
        with raising, pool.acquire(command("port"), timeout=10):
            pass


def test_an_answer_other_than_200_is_not_ready(pool: forebay.ServicePool) -> None:
    """A server that says 503 while it loads gets no caller yet."""
    loading = command("http", "--unhealthy", "3")
    with pool.acquire(loading) as backend:
        port = backend.started.port
        with socket.create_connection(("127.0.0.1", port or 0)) as connection:
            connection.sendall(b"GET /path HTTP/1.0\r\n\r\n")
            assert connection.recv(100) == b"HTTP/1.0 200 OK\r\n\r\n/path"


@pytest.mark.needs("gcc")
def test_a_compiled_program_listens_on_its_unix_socket(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """Nothing of Python, and nothing of Forebay, is needed in the program."""
    program = tmp_path / "echo"
    source = LISTEN.with_name("echo_unix.c")
    subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
    with pool.acquire(forebay.Command([str(program), "{socket}"])) as backend:
        path = backend.started.socket_path
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path or "")
            connection.sendall(b"unchanged")
            assert connection.recv(100) == b"unchanged"


def test_stdin_and_stdout_can_be_the_socket(pool: forebay.ServicePool) -> None:
    """A filter is a service; what it writes to stderr does not get into its answers."""
    shout = (
        "import sys\n"
        "print('ready to shout', file=sys.stderr, flush=True)\n"
        "for line in sys.stdin: print(line.upper(), end='', flush=True)"
    )
    with pool.acquire(forebay.Command([sys.executable, "-I", "-c", shout], stdio=True)) as backend:
        backend.socket.sendall(b"hello\n")
        assert backend.socket.recv(100) == b"HELLO\n"
        assert backend.lease.stderr == "ready to shout\n"


def test_what_a_filter_left_unread_never_reaches_the_next_holder(
    pool: forebay.ServicePool,
) -> None:
    """An answer on its way ends the program, not the next caller's trust."""
    cat = forebay.Command(["cat"], stdio=True)
    with pool.acquire(cat) as backend:
        victim = backend.lease.pid
        backend.socket.sendall(b"for nobody")
        backend.socket.recv(1, socket.MSG_PEEK)
    with pool.acquire(cat) as backend:
        assert backend.lease.pid != victim
        backend.socket.sendall(b"mine")
        assert backend.socket.recv(100) == b"mine"


def test_a_program_may_say_ready_on_its_descriptor_and_serve_elsewhere(
    pool: forebay.ServicePool, tmp_path: Path
) -> None:
    """The best readiness goes together with a Unix socket of its own and a connect function."""
    program = tmp_path / "both.py"
    program.write_text(
        "import socket, sys\n"
        "listener = socket.socket(socket.AF_UNIX)\n"
        "listener.bind(sys.argv[2])\n"
        "listener.listen()\n"
        "socket.socket(fileno=int(sys.argv[1])).send(b'!')\n"
        "while True: listener.accept()[0].sendall(b'here')\n"
    )
    both = forebay.Command([sys.executable, "-I", str(program), "{fd}", "{socket}"])
    assert both.ready == "fd"
    with pool.acquire(both) as backend, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(backend.started.socket_path or "")
        assert connection.recv(10) == b"here"


def test_the_private_directory_can_be_named_anywhere(pool: forebay.ServicePool) -> None:
    """In an argument, in the environment, as working directory; and each program has another."""
    tell = (
        "import os, signal, sys\n"
        "print('at', os.getcwd(), sys.argv[1], os.environ['HERE'], flush=True)\n"
        "signal.pause()"
    )
    told = forebay.Command(
        [sys.executable, "-I", "-c", tell, "--at={dir}/x"],
        env={"HERE": "{dir}"},
        cwd="{dir}",
        ready=Line("^at "),
        reuse=False,
    )
    directories = set()
    for _ in range(2):
        with pool.acquire(told) as backend:
            directory = backend.started.directory
            assert backend.started.text == f"at {directory} --at={directory}/x {directory}"
            directories.add(directory)
    assert len(directories) == 2


WRONG: dict[str, dict[str, Any]] = {
    "nothing to see": {"arguments": ["cat"]},
    "no number": {"arguments": ["cat", "{fd}"], "ready": 17},
    "accepting where": {"arguments": ["cat", "{fd}"], "ready": Accepting()},
    "two places": {"arguments": ["cat", "{socket}", "{port}"]},
    "two streams": {"arguments": ["cat", "{fd}"], "stdio": True},
    "no file": {"arguments": ["cat"], "ready": PortFile()},
    "file of what": {"arguments": ["cat", "{port_file}", "{fd}"]},
    "null": {"arguments": ["cat", "{fd}", "\0"]},
}


@pytest.mark.parametrize("what", list(WRONG))
def test_a_readiness_that_cannot_be_seen_is_refused(what: str) -> None:
    """A mistake is told where it is made, not after a timeout."""
    with pytest.raises(forebay.ConfigError):
        forebay.Command(**WRONG[what])


@pytest.mark.parametrize("pattern", ["(", "ready(?=now)", r"(a)\1"])
def test_a_pattern_that_cannot_be_matched_is_refused(pattern: str) -> None:
    """Look-around and back references would let a pattern hold the keeper."""
    with pytest.raises(forebay.ConfigError):
        Line(pattern)


@pytest.mark.parametrize("make", [lambda: PortFile("a/b"), lambda: Http("health")])
def test_a_place_that_is_none_is_refused(make: Any) -> None:
    """The file is in the private directory, and a path begins with a slash."""
    with pytest.raises(forebay.ConfigError):
        make()
