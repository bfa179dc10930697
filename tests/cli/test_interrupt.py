"""Ctrl-C, SIGTERM and a terminal, in front of a request that runs."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor import Client
from tests.executor.client_fixtures import client, server
from tests.executor.small_server import SmallServer

__all__ = ["client", "server"]

ROOT = Path(__file__).parents[2]
FIRST_BYTES = b"gr"


class Running:
    """`forebay run hold`, of which the log has begun to come."""

    def __init__(self, url: str, *options: str) -> None:
        command = [sys.executable, "-m", "forebay.cli", "run", "--url", url, *options, "hold"]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.seen = b""
        self.until(FIRST_BYTES)

    def until(self, text: bytes) -> None:
        """Read stderr until `text` has come."""
        assert self.process.stderr is not None
        while text not in self.seen:
            piece = os.read(self.process.stderr.fileno(), 4096)
            assert piece, self.seen
            self.seen += piece

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out.decode(), (self.seen + err).decode()


@pytest.fixture
def running(server: SmallServer) -> Iterator[Running]:
    """The command, while the request runs."""
    running = Running(server.url)
    yield running
    running.process.kill()
    running.process.communicate()


def test_ctrl_c_leaves_the_request_running(running: Running, client: Client) -> None:
    """And says how to go on; exit code 130."""
    running.process.send_signal(signal.SIGINT)
    code, out, err = running.end()
    assert (code, out) == (130, "")
    assert "000000000001 goes on; to wait: forebay wait 000000000001" in err
    assert client.get("000000000001").status() == "running"


def test_a_second_ctrl_c_cancels_it(running: Running, client: Client) -> None:
    """Exit code 6."""
    running.process.send_signal(signal.SIGINT)
    running.until(b"once more cancels")
    running.process.send_signal(signal.SIGINT)
    assert running.end()[0] == 6
    assert client.get("000000000001").status() == "cancelled"


def test_sigterm_leaves_the_request_running(running: Running, client: Client) -> None:
    """Exit code 143."""
    running.process.send_signal(signal.SIGTERM)
    code, _, err = running.end()
    assert code == 143
    assert "000000000001 goes on" in err
    assert client.get("000000000001").status() == "running"


def test_a_terminal_shows_a_bar_above_which_the_log_scrolls(
    server: SmallServer, client: Client
) -> None:
    """The result is still alone on stdout."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay.cli", "run", "--url", server.url, "hold"],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=end,
    )
    os.close(end)
    seen = b""
    while b"25%" not in seen:
        seen += os.read(terminal, 4096)
    client.ask("release")
    assert process.stdout is not None
    assert process.stdout.read() == b"{}\n"
    while True:
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # its other end is closed
            break
    process.stdout.close()
    os.close(terminal)
    assert process.wait(20) == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "grün" in plain
    assert re.search(r"hold .*25% \(1 of 4 row\), m", plain)


def test_top_draws_until_q_and_leaves_the_terminal_as_it_was(
    server: SmallServer, client: Client
) -> None:
    """On the terminal's other screen, with the cursor back at the end."""
    request = client.submit("hold")
    assert request.id
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay.cli", "top", "--url", server.url],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"},
        stdin=end,
        stdout=end,
    )
    before = termios.tcgetattr(end)
    seen = b""
    while seen.count(b"q: leave") < 1:
        seen += os.read(terminal, 65536)
    assert client.submit("echo").id
    while seen.count(b"q: leave") < 2:  # a picture of what has happened
        seen += os.read(terminal, 65536)
    assert seen.startswith(b"\x1b[?1049h")
    assert b"running" in seen
    os.write(terminal, b"q")
    assert process.wait(20) == 0
    while b"\x1b[?1049l" not in seen:
        seen += os.read(terminal, 65536)
    assert termios.tcgetattr(end)[3] == before[3]
    os.close(end)
    os.close(terminal)
