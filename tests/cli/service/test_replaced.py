"""`forebay serve --takeover`: over HTTP, under systemd, in the background."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.service.stand_in import ROOT, Unit
from tests.executor.serving import until, wait_gone

APP = """
import os
import time

import forebay

app = forebay.App("replaced")


@app.request(lane="short")
def add(a: int, b: int = 2) -> int:
    return a + b


@app.request()
def stay(gate: str) -> int:
    while not os.path.exists(gate):
        time.sleep(0.01)
    return os.getpid()
"""

TAKEOVERS = min(5, int(os.environ.get("FOREBAY_TAKEOVERS", "2")))
pytestmark = pytest.mark.timeout(300)


class Home:
    """Where servers of one application run, one in the place of the other."""

    def __init__(self, directory: Path) -> None:
        self.app = directory / "app.py"
        self.app.write_text(APP)
        self.runtime = tempfile.TemporaryDirectory(prefix="fb-", dir="/tmp")
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": self.runtime.name,
            "FOREBAY_STATE_DIR": str(directory / "state"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), str(ROOT)]),
        }
        self.servers: list[subprocess.Popen[str]] = []

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Files, since a server in the background keeps its output."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            done = subprocess.run(
                [sys.executable, "-m", "forebay.cli", *arguments],
                env=self.environment,
                stdout=output,
                stderr=errors,
                text=True,
                timeout=60,
            )
            output.seek(0)
            errors.seek(0)
            done.stdout, done.stderr = output.read(), errors.read()
        return done

    def serve(self, *arguments: str) -> dict[str, str]:
        """Start a server, and wait until it serves; the facts of its events."""
        server = subprocess.Popen(
            [sys.executable, "-m", "forebay.cli", "serve", str(self.app), "--json", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.servers.append(server)
        told: dict[str, str] = {}
        wanted = "http" if "--http" in arguments else "ready"
        assert server.stdout is not None
        for line in server.stdout:
            told |= json.loads(line)
            if told["event"] == wanted:
                return told
        raise AssertionError(f"it ended with {server.wait()}")

    def close(self) -> None:
        """End them all."""
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
            server.wait(30)
            assert server.stdout is not None
            server.stdout.close()
        self.runtime.cleanup()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


class Browser:
    """Submits over HTTP without a pause, and counts how it is answered."""

    def __init__(self, url: str, token: str) -> None:
        self.failures: list[str] = []
        self.results = 0
        self._address = url.partition("://")[2]
        self._token = token
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for the last answer."""
        self._over = True
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._over:
            number += 1
            try:
                self._submit(number)
            except OSError as error:  # refused, reset: a connection of its own for each
                self.failures.append(f"{number}: {error!r}")

    def _submit(self, number: int) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            headers = {
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "Prefer": "wait=20",
            }
            body = json.dumps({"a": number})
            connection.request("POST", "/v1/requests/add", body, headers)
            answer = connection.getresponse()
            told = answer.read()
            if answer.status >= 300:
                self.failures.append(f"{number}: {answer.status} {told[:300]!r}")
            else:
                self.results += 1
        except http.client.HTTPException as error:
            self.failures.append(f"{number}: {error!r}")
        finally:
            connection.close()


def test_nobody_is_refused_over_http(home: Home) -> None:
    """Its socket goes over; the old gateway answers what it has begun."""
    told = home.serve("--http", "127.0.0.1:0")
    url = told["url"]
    token = home.command("token", "add", "ci", "--role", "submit", "--app", str(home.app))
    assert token.returncode == 0, token.stderr
    browser = Browser(url, token.stdout.split()[-1])
    try:
        for _ in range(TAKEOVERS):
            before = home.servers[-1]
            until(lambda seen=browser.results: browser.results > seen + 20)
            assert home.serve("--takeover", "--http")["url"] == url
            assert before.wait(30) == 0
        until(lambda seen=browser.results: browser.results > seen + 20)
    finally:
        browser.end()
    assert browser.failures == []


def test_the_old_gateway_leaves_although_its_server_keeps_a_worker(
    home: Home, tmp_path: Path
) -> None:
    """It would answer for a server that does not know it any more."""
    gate = tmp_path / "gate"
    url = home.serve("--http", "127.0.0.1:0")["url"]
    token = home.command("token", "add", "ci", "--role", "submit", "--app", str(home.app))
    stays = home.command("submit", "--app", str(home.app), "stay", "--gate", str(gate))
    assert stays.returncode == 0, stays.stderr
    until(lambda: "1 running" in home.command("status", "--app", str(home.app)).stdout)
    home.serve("--takeover", "--http")
    browser = Browser(url, token.stdout.split()[-1])
    until(lambda: browser.results + len(browser.failures) > 150)
    browser.end()
    assert browser.failures == []
    assert home.servers[0].poll() is None, "it keeps the worker"
    gate.touch()
    assert home.servers[0].wait(30) == 0


def test_http_is_not_given_up_by_mistake(home: Home) -> None:
    """A forgotten option would end it for everybody."""
    told = home.serve("--http", "127.0.0.1:0")
    done = home.command("serve", str(home.app), "--takeover")
    assert done.returncode == 2
    assert f"answers at {told['url']}, and the new one would not; give --http" in done.stderr
    assert home.servers[0].poll() is None


def test_in_the_background_the_command_ends_once_it_serves(home: Home) -> None:
    """As `ExecReload=` of a unit needs it."""
    home.serve()
    done = home.command("serve", str(home.app), "--takeover", "--detach", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert home.servers[0].wait(30) == 0
    status = home.command("status", "--json", "--app", str(home.app))
    pid = json.loads(status.stdout)["pid"]
    assert pid != home.servers[0].pid
    home.app.write_text("raise RuntimeError('half of an edit')")
    failed = home.command("serve", str(home.app), "--takeover", "--detach")
    assert failed.returncode == 2
    assert "half of an edit" in failed.stderr
    assert home.command("stop", "--app", str(home.app)).returncode == 0
    wait_gone(pid)


@pytest.mark.parametrize("is_told", [False, True])
def test_systemd_is_told_of_the_new_process(tmp_path: Path, is_told: bool) -> None:
    """By the old one, which it listens to; from then on by the new one alone.

    With `NotifyAccess=all` the command has systemd's socket, and nothing of the watchdog.
    """
    app = tmp_path / "app.py"
    app.write_text(APP)
    gate = tmp_path / "gate"
    with Unit(tmp_path, "serve", str(app), "--quiet", watchdog_s=4.0) as unit:
        unit.hear("READY")
        with unit.command("run", f"{app}:stay", "--gate", str(gate), "--quiet") as running:
            unit.hear("STATUS", "1 running")
            takeover = ("serve", str(app), "--takeover", "--detach", "--quiet")
            with unit.command(*takeover, is_told=is_told) as command:
                assert command.wait(40) == 0
            told = unit.hear("MAINPID")
            new = int(told["MAINPID"])
            begun = len(unit.told)
            unit.hear("WATCHDOG", "1")
            unit.hear("WATCHDOG", "1")
            assert new != unit.pid
            assert {one.pid for one in unit.told[:begun]} == {unit.pid}
            assert {one.pid for one in unit.told[begun:]} == {new}
            assert any("READY" in one.fields for one in unit.told[begun:])
            gate.touch()
            assert running.wait(40) == 0
        assert unit.ended()[0] == 0, "the old one, with its last worker"
        os.kill(new, signal.SIGTERM)
        unit.hear("STOPPING", "1")
        wait_gone(new)
