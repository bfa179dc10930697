"""A server that systemd started, which a stand-in plays."""

from __future__ import annotations

import ctypes
import http.client
import itertools
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from forebay.cli.service.systemd import END_S
from tests.cli.service.stand_in import Unit
from tests.executor.serving import thread_of

APP: Final = """
import os
import subprocess
import time

import forebay

app = forebay.App("unit")


@app.request(lane="short")
def seen() -> dict[str, str]:
    output = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    return dict(line.partition("=")[::2] for line in output.splitlines())


@app.request()
def slow() -> str:
    time.sleep(5.0)
    return "done"
"""

pytestmark = pytest.mark.timeout(180)  # each starts a server, some twice

PTRACE_SEIZE: Final = 0x4206
PTRACE_INTERRUPT: Final = 0x4207
PTRACE_DETACH: Final = 17
WALL: Final = 0x40000000


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A file with an application."""
    file = tmp_path / "unit_app.py"
    file.write_text(APP)
    return file


@contextmanager
def stopped(pid: int, thread: str) -> Iterator[None]:
    """Stop one thread of a child: SIGSTOP would stop all of them."""
    task = thread_of(pid, thread)
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    trace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    assert trace(PTRACE_SEIZE, task, None, None) == 0, os.strerror(ctypes.get_errno())
    assert trace(PTRACE_INTERRUPT, task, None, None) == 0
    os.waitpid(task, WALL)
    try:
        yield
    finally:
        assert trace(PTRACE_DETACH, task, None, None) == 0


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket as of `ListenStream=127.0.0.1:0`."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener


def gateways(pid: int) -> list[Path]:
    """The gateways of a server, each a child of the thread that has started it."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [Path("/proc", child) for one in threads for child in one.read_text().split()]
    return [one for one in children if b"forebay.gateway" in (one / "cmdline").read_bytes()]


def get(listener: socket.socket, path: str) -> int:
    """The status of an answer over HTTP."""
    connection = http.client.HTTPConnection(*listener.getsockname(), timeout=40)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("is_abstract", [False, True])
def test_every_message_comes_in_its_order(tmp_path: Path, app: Path, is_abstract: bool) -> None:
    """`systemctl start` returns when requests can run, `reload` when the new code serves."""
    with Unit(tmp_path, "serve", str(app), "--quiet", is_abstract=is_abstract) as unit:
        unit.hear("READY", "1")
        unit.hear("STATUS", "serving: 0 running, 0 waiting")
        unit.signal(signal.SIGHUP)
        told = unit.hear("RELOADING", "1")
        assert int(told["MONOTONIC_USEC"]) > 0
        unit.hear("READY", "1")
        unit.signal(signal.SIGTERM)
        unit.hear("STOPPING", "1")
        assert unit.ended()[0] == 128 + signal.SIGTERM
        states = [name for one in unit.told for name in one.fields if name != "STATUS"]
        reload = ["RELOADING", "MONOTONIC_USEC", "READY"]
        assert states == ["READY", *reload, "STOPPING", "EXTEND_TIMEOUT_USEC"]
        assert {one.pid for one in unit.told} == {unit.pid}


def test_a_drain_that_is_longer_than_the_units_is_waited_for(tmp_path: Path, app: Path) -> None:
    """`forebay stop --grace 10min` is not ended by `TimeoutStopSec=` after 90 s."""
    with Unit(tmp_path, "serve", str(app), "--quiet") as unit:
        unit.hear("READY")
        with unit.command("run", f"{app}:slow", "--quiet") as running:
            unit.hear("STATUS", "1 running")
            with unit.command("stop", "--app", str(app), "--grace", "10min", "--quiet") as stop:
                assert unit.stopped(0.5) == 0
                told = next(one.fields for one in unit.told if "STOPPING" in one.fields)
                assert int(told["EXTEND_TIMEOUT_USEC"]) == (600 + END_S) * 1e6
                assert stop.wait(40) == 0
            assert (running.wait(40), running.communicate()[0]) == (0, "done\n")


def test_an_application_that_cannot_be_imported_is_not_ready(tmp_path: Path, app: Path) -> None:
    """`systemctl status` says why; a reload after it was mended makes it ready."""
    app.write_text("import nowhere_to_be_found\n" + APP)
    with Unit(tmp_path, "serve", str(app), "--quiet") as unit:
        told = unit.hear("STATUS", "No module named 'nowhere_to_be_found'")
        assert told["STATUS"].endswith("requests wait")
        assert not any("READY" in one.fields for one in [*unit.told, *unit.listen(1.5)])
        app.write_text(APP)
        unit.signal(signal.SIGHUP)
        unit.hear("READY", "1")
        unit.hear("STATUS", "serving")


def test_a_reload_that_fails_ends_the_job_and_says_so(tmp_path: Path, app: Path) -> None:
    """The old code serves, and `systemctl reload` does not hang."""
    with Unit(tmp_path, "serve", str(app), "--quiet") as unit:
        unit.hear("READY")
        app.write_text("raise RuntimeError('half of an edit')\n")
        unit.signal(signal.SIGHUP)
        unit.hear("RELOADING")
        told = unit.hear("READY")
        assert "half of an edit" in told["STATUS"]
        assert told["STATUS"].endswith("the code before it serves")


def test_pings_stop_while_the_dispatcher_hangs(tmp_path: Path, app: Path) -> None:
    """A server that cannot dispatch is started again, though its other threads are well."""
    with Unit(tmp_path, "serve", str(app), "--quiet", watchdog_s=0.8) as unit:
        unit.hear("READY")
        pings = [one.at for one in unit.listen(3.0) if "WATCHDOG" in one.fields]
        assert len(pings) >= 3
        assert max(after - before for before, after in itertools.pairwise(pings)) < 0.8
        with stopped(unit.pid, "forebay-dispatc"):
            unit.listen(0.5)  # what was on its way
            assert not [one for one in unit.listen(1.6) if "WATCHDOG" in one.fields]
        unit.hear("WATCHDOG", "1")


def test_pings_stop_while_the_process_is_stopped(tmp_path: Path, app: Path) -> None:
    """So they do for every thread at once."""
    with Unit(tmp_path, "serve", str(app), "--quiet", watchdog_s=0.8) as unit:
        unit.hear("WATCHDOG")
        unit.signal(signal.SIGSTOP)
        unit.listen(0.5)
        assert not unit.listen(1.6)
        unit.signal(signal.SIGCONT)
        unit.hear("WATCHDOG")


def test_no_process_of_the_server_can_speak_for_it(tmp_path: Path, app: Path) -> None:
    """What a request starts is not the service, and has none of its variables."""
    with listening() as listener:
        unit = Unit(
            tmp_path,
            "serve",
            str(app),
            "--quiet",
            "--http",
            sockets=[("http", listener)],
            watchdog_s=60,
        )
        with unit:
            unit.hear("READY")
            with unit.command("run", f"{app}:seen") as running:
                output, _ = running.communicate(timeout=40)
            seen = json.loads(output.replace("'", '"'))
            of_systemd = [one for one in seen if one.startswith(("NOTIFY", "LISTEN", "WATCHDOG"))]
            assert not of_systemd
            assert seen["FOREBAY_STATE_DIR"]
            (gateway,) = gateways(unit.pid)
            variables = (gateway / "environ").read_bytes().split(b"\0")
            assert any(one.startswith(b"FOREBAY_STATE_DIR=") for one in variables)
            assert not any(one.startswith((b"NOTIFY", b"LISTEN", b"WATCH")) for one in variables)


def test_http_is_served_at_the_socket_of_systemd(tmp_path: Path, app: Path) -> None:
    """Who connects before the start, or while the server is started again, is answered."""
    with listening() as listener, socket.create_connection(listener.getsockname()) as early:
        early.settimeout(40)
        early.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        unit = Unit(tmp_path, "serve", str(app), "--quiet", "--http", sockets=[("http", listener)])
        with unit:
            assert early.recv(12) == b"HTTP/1.1 200"
            unit.hear("READY")
            assert get(listener, "/readyz") == 200
            unit.signal(signal.SIGKILL)
            unit.ended()
            with socket.create_connection(listener.getsockname()) as between:
                between.settimeout(40)
                between.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                unit.start()
                assert between.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("http", [], "give --http without an address"),
        ("web", ["--http"], "FileDescriptorName=http"),
        ("http", ["--http", "fd://web"], "0 sockets of that name"),
    ],
)
def test_a_socket_that_nobody_would_accept_from_is_refused(
    tmp_path: Path, app: Path, name: str, options: list[str], said: str
) -> None:
    """Clients would wait in its queue for ever."""
    with listening() as listener:
        unit = Unit(tmp_path, "serve", str(app), *options, sockets=[(name, listener)])
        with unit:
            code, errors = unit.ended()
    assert code == 2
    assert said in errors


def test_what_lends_services_is_ready_too(tmp_path: Path) -> None:
    """A unit without an application."""
    with Unit(tmp_path, "serve", "--quiet") as unit:
        told = unit.hear("READY")
        assert told["STATUS"].startswith("lending services at ")
        unit.signal(signal.SIGTERM)
        unit.hear("STOPPING")
        unit.ended()
    with Unit(tmp_path, "serve", "--quiet", watchdog_s=5) as unit:
        code, errors = unit.ended()
    assert code == 2
    assert "WatchdogSec= needs an application" in errors
