"""`forebay hooks` against a real server with a real receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli import main
from tests.executor.server.hooks.receiver import Receiver, status
from tests.executor.serving import Caller, RefusedError, Serving, until, wait_gone

APP = """
import forebay

app = forebay.App("hooked")


@app.request()
def fails() -> None:
    raise ValueError("no")
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    with Receiver() as made:
        yield made


@pytest.fixture
def serving(tmp_path: Path, receiver: Receiver) -> Iterator[Serving]:
    """A server with two hooks."""
    hooks = [
        {"name": "ops", "on": ["failed"], "url": receiver.url},
        {"name": "other", "on": ["dead"], "names": ["tune"], "command": ["/bin/false"]},
    ]
    with Serving(tmp_path, APP, hooks=hooks) as made:
        yield made


def fail(caller: Caller) -> str:
    """The id of a request that has failed."""
    id = caller.submit("fails")
    with pytest.raises(RefusedError):
        caller.wait(id)
    return id


def test_hooks_are_listed_called_and_their_log_is_shown(
    serving: Serving, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where somebody looks who has heard nothing."""
    url = ["--url", f"unix://{serving.socket}"]
    assert main(["hooks", *url, "log"]) == 0
    assert "no hook was called yet" in capsys.readouterr().err
    receiver.answers = [status(500, b"no room")]
    with serving.caller() as caller:
        id = fail(caller)
        until(lambda: caller.ask("hook_log", 9)["calls"])
        until(lambda: "no room" in str(caller.ask("hooks")))  # it is read from the disk
    assert main(["hooks", *url]) == 0
    head, ops, other = capsys.readouterr().out.splitlines()
    assert head.split()[:5] == ["name", "on", "calls", "signed", "waiting"]
    assert ops.split()[:5] == ["ops", "failed", receiver.url.rpartition("/")[0], "no", "1"]
    assert ops.endswith("500 Internal Server Error: no room")
    assert other.split()[:5] == ["other", "dead", "of", "tune", "/bin/false"]
    assert main(["hooks", *url, "log"]) == 0
    line = capsys.readouterr().out
    assert f"ops failed failed {id} fails: try 1" in line
    assert "500 Internal Server Error: no room; again at" in line
    assert main(["hooks", *url, "log", "--json"]) == 0
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["hook"], told["outcome"], told["id"], told["schema"]) == ("ops", "failed", id, 1)
    assert main(["hooks", *url, "--json"]) == 0
    told, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["name"], told["waiting"], told["given_up"]) == ("ops", 1, 0)


def test_a_test_prints_the_answer_and_its_code_says_how_it_went(
    serving: Serving, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a script that sets a hook up."""
    url = ["--url", f"unix://{serving.socket}"]
    assert main(["hooks", "test", "ops", *url]) == 0
    assert capsys.readouterr().out.startswith("ops: delivered in ")
    assert receiver.call().told["event"] == "test"
    assert main(["hooks", "test", "other", "--json", *url]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["delivered"], told["said"]) == (False, "exit code 1")
    assert main(["hooks", "test", "none", *url]) == 4
    assert "there is no hook 'none'; see: forebay hooks ls" in capsys.readouterr().err
    assert main(["hooks", "test", *url]) == 2
    assert "forebay hooks test NAME" in capsys.readouterr().err


def test_a_server_without_hooks_says_where_to_write_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first thing that somebody tries."""
    with Serving(tmp_path, APP) as serving:
        assert main(["hooks", "--url", f"unix://{serving.socket}"]) == 0
    assert "~/.config/forebay/forebay.toml" in capsys.readouterr().err


def test_a_server_calls_the_hooks_of_its_user_and_none_of_a_cloned_project(
    tmp_path: Path, receiver: Receiver
) -> None:
    """The first failure in a cloned directory would run code of its author."""
    (tmp_path / "app.py").write_text(APP)
    marker = tmp_path / "marker"
    (tmp_path / "forebay.toml").write_text(
        f'[[hooks]]\nname = "theirs"\non = ["failed"]\ncommand = ["touch", "{marker}"]\n'
    )
    users = tmp_path / "config/forebay/forebay.toml"
    users.parent.mkdir(parents=True)
    users.write_text(f'[[hooks]]\nname = "ours"\non = ["failed"]\nurl = "{receiver.url}"\n')
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:  # a socket's path is short
        environment = {
            **{name: it for name, it in os.environ.items() if not name.startswith("FOREBAY_")},
            "XDG_RUNTIME_DIR": runtime,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "FOREBAY_STATE_DIR": str(tmp_path / "state"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

        def forebay(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "forebay.cli", *words]
            return subprocess.run(
                command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=50
            )

        try:
            assert forebay("run", "app.py:fails").returncode == 1
            assert receiver.call().told["hook"] == "ours"
            (told,) = map(json.loads, forebay("hooks", "--json").stdout.splitlines())
            assert told["name"] == "ours"
            assert "FOREBAY_CONFIG=" in forebay("config", "hooks").stderr
        finally:
            stopped = forebay("stop", "--grace", "0s", "--json")
        wait_gone(json.loads(stopped.stdout)["pid"])
    assert not marker.exists()
