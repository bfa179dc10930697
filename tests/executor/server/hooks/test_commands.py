"""Hooks that run a command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.executor.server.hooks.hooked import delivered, fail, log_of
from tests.executor.serving import Serving, until, wait_gone

COMMAND = """
import json, os, subprocess, sys, time
told = json.load(sys.stdin)
with open(sys.argv[1], "a") as file:
    left = sorted(set(os.environ) - {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"})
    pid = 0
    if sys.argv[2] != "plain":
        pid = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    print(json.dumps([told["event"], told.get("request", {}).get("id"), left, pid]), file=file)
print("said", sys.argv[2])
if sys.argv[2] == "hangs":
    time.sleep(600)
sys.exit(3 if sys.argv[2] == "fails" else 0)
"""


def command(tmp_path: Path, how: str) -> tuple[dict[str, Any], Path]:
    """A hook that runs a command, and where that notes what it was told."""
    program, notes = tmp_path / f"{how}.py", tmp_path / f"{how}.notes"
    program.write_text(COMMAND)
    argv = [sys.executable, str(program), str(notes), how]
    return {"name": how, "on": ["failed"], "command": argv}, notes


def notes_of(path: Path) -> list[list[Any]]:
    """What a command has noted."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("]")]


def test_a_command_is_told_on_stdin_and_sees_little_else(
    serve: Callable[..., Serving], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens in the server's environment are not the command's."""
    monkeypatch.setenv("SOME_TOKEN", "secret")
    hook, notes = command(tmp_path, "plain")
    serving = serve(hook)
    with serving.caller() as caller:
        (id,) = fail(caller)
        delivered(serving)
        ((event, told, left, _),) = notes_of(notes)
        assert (event, told) == ("failed", id)
        assert set(left) <= {"FOREBAY_EVENT", "FOREBAY_HOOK", "LC_CTYPE"}
        assert log_of(caller)[0]["said"] == "exit code 0: said plain"


def test_what_a_command_leaves_behind_is_killed(
    serve: Callable[..., Serving], tmp_path: Path
) -> None:
    """Neither a command that hangs nor its children stay, and the exit code decides."""
    fails, failed = command(tmp_path, "fails")
    hangs, hung = command(tmp_path, "hangs")
    forks, forked = command(tmp_path, "forks")
    serving = serve(fails, hangs, forks, hook_try_s=1.0)
    with serving.caller() as caller:
        fail(caller)
        until(lambda: sum(one["given_up"] for one in caller.ask("hooks")["hooks"]) == 2, 60)
        assert len(notes_of(failed)) == len(notes_of(hung)) == 5
        assert len(notes_of(forked)) == 1
        for *_, pid in notes_of(failed) + notes_of(hung) + notes_of(forked):
            wait_gone(pid)
        errors = {one["name"]: one["error"] for one in caller.ask("hooks")["hooks"]}
        assert errors["fails"] == "exit code 3: said fails"
        assert errors["hangs"] == "no answer within 1 s"
        assert errors["forks"] is None


def test_a_killed_server_leaves_no_command(serve: Callable[..., Serving], tmp_path: Path) -> None:
    """The hooks process ends with the server, and what it runs with it."""
    hook, notes = command(tmp_path, "hangs")
    serving = serve(hook)
    with serving.caller() as caller:
        fail(caller)
        until(lambda: notes_of(notes))
    ((*_, grandchild),) = notes_of(notes)
    os.kill(serving.pid, 9)
    serving.ended()
    wait_gone(grandchild)
