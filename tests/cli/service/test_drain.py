"""`forebay cordon` and `forebay drain` against a real server, from a shell and over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.executor.serving import until
from tests.gateway.http.http_serving import HttpServing

CLIENT = Path(__file__).resolve().parents[3] / "clients" / "python"
"""Where forebay-client is, which commands use over HTTP."""

pytestmark = pytest.mark.timeout(180)  # each starts a server and several commands


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Site:
    """A server with its gateway, and commands that speak to it."""

    def __init__(self, directory: Path) -> None:
        self.serving = HttpServing(directory)
        here = self.serving.environment["PYTHONPATH"]
        self.serving.environment["PYTHONPATH"] = os.pathsep.join([here, str(CLIENT)])
        self.gate = directory / "gate"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "forebay.cli", *words],
            env=self.serving.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> Done:
        """Run a command to its end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=40)
        return Done(process.returncode, out, err)

    def ready_status(self) -> int:
        """Of `/readyz`, which is a second old at most."""
        return self.serving.call("GET", "/readyz", token=None).status

    def hold(self) -> str:
        """A request that runs until the gate is open."""
        id_ = self.serving.submit("hold", path=str(self.gate))
        until(lambda: self.serving.call("GET", f"/v1/requests/{id_}").json["status"] == "running")
        return id_


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    with site.serving:
        yield site


def test_a_cordon_is_seen_everywhere_and_undone(site: Site) -> None:
    """By the command, `forebay status`, `/readyz`, and by those who are refused."""
    done = site("cordon", "--reason", "a new kernel")
    assert (done.code, done.out) == (0, "")
    assert "forebay cordon --undo" in done.err
    assert "has cordoned the server: a new kernel; for" in site("status").out
    assert "cordoned: " in site("top", "--once").out
    until(lambda: site.ready_status() == 503)
    refused = site.serving.call("POST", "/v1/requests/add", {"a": 1})
    assert (refused.status, refused.json["code"]) == (503, "draining")
    assert int(refused.headers["retry-after"]) > 0
    assert "a new kernel" in refused.json["message"]
    assert site("cordon", "--undo").err.endswith("takes submissions again\n")
    assert "no cordon" in site("cordon", "--undo").err
    until(lambda: site.ready_status() == 200)
    assert site("cordon", "--undo", "--reason", "x").code == 2


def test_a_drain_waits_until_nothing_runs(site: Site) -> None:
    """It says what it waits for, then what is left for the next server."""
    running = site.hold()
    drain = site.start("drain")
    until(lambda: site.ready_status() == 503)
    assert drain.stderr is not None
    line = drain.stderr.readline()
    assert f"1 running: {running} hold for" in line
    site.gate.touch()
    _, err = drain.communicate(timeout=40)
    assert drain.returncode == 0
    assert "nothing runs" in err
    assert site("cordon", "--undo").code == 0
    assert site("run", "add", "--a", "1").out == "2\n"


def test_a_drain_that_takes_too_long_says_what_still_runs(site: Site) -> None:
    """124, as for every time that runs out; the server stays drained."""
    running = site.hold()
    done = site("drain", "--timeout", "1s")
    assert done.code == 124
    assert f"not drained in time: 1 running: {running} hold for" in done.err
    done = site("drain", "--timeout", "0.3s", "--json", "--quiet")
    assert done.code == 124
    told = json.loads(done.out)
    assert (told["drained"], told["running"], told["waiting"]) == (False, 1, 0)
    assert [one["id"] for one in told["requests"]] == [running]
    site.gate.touch()
    assert site("drain", "--quiet") == (0, "", "")


def test_a_drain_that_finishes_runs_what_waits(site: Site) -> None:
    """A machine that does not come back leaves nothing behind."""
    assert site("drain", "--quiet").code == 0
    site("cordon", "--undo")
    site.hold()
    more = [site.serving.submit("note", path=f"{site.gate}.notes", text=str(n)) for n in range(3)]
    drain = site.start("drain", "--finish", "--json")
    until(lambda: site.ready_status() == 503)
    site.gate.touch()
    out, _ = drain.communicate(timeout=40)
    assert json.loads(out) == {
        "schema": 1,
        "drained": True,
        "running": 0,
        "waiting": 0,
        "requests": [],
    }
    for id_ in more:
        assert site.serving.call("GET", f"/v1/requests/{id_}").json["status"] == "succeeded"


def test_a_drain_that_is_undone_meanwhile_says_so(site: Site) -> None:
    """It would wait for a server that is given ever more to do."""
    site.hold()
    drain = site.start("drain")
    until(lambda: site.ready_status() == 503)
    site.serving.call("POST", "/v1/cordon", {"undo": True})
    _, err = drain.communicate(timeout=40)
    assert drain.returncode == 3
    assert "was undone while it drained" in err


def test_over_http_it_is_one_route(site: Site) -> None:
    """With the name of the token as who asked for it."""
    told = site.serving.call("POST", "/v1/cordon", {"reason": "upgrade", "dispatches": False}).json
    assert told["cordon"]["by"] == "local"
    assert told["cordon"]["dispatches"] is False
    url = ("--url", site.serving.url)
    token = ("--token-file", str(site.serving.state / "local.token"))
    assert "local drains the server: upgrade" in site("status", *url, *token).out
    assert site("drain", *url, *token, "--quiet").code == 0
    assert site("cordon", "--undo", *url, *token).code == 0
    assert site.serving.call("GET", "/v1/info").json["figures"]["cordon"] is None
