"""The server's end of the hooks process: it is started, given up when it hangs, and ended."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.executor.server.hooks import link
from forebay.executor.server.hooks.link import Ended, Link
from tests.executor.serving import descendants, until, wait_gone


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    """An end without a process, which waits for little."""
    monkeypatch.setattr(link, "GRACE_S", 0.5)
    monkeypatch.setattr(link, "IDLE_S", 1.0)
    made = Link(tmp_path, try_s=20.0)
    yield made
    made.close()


def ask(linked: Link, token: str, *command: str) -> str | None:
    """Ask for a run of a command."""
    environment = {"PATH": os.environ["PATH"]}
    asked: dict[str, Any] = {"command": command, "environment": environment, "url": ""}
    return linked.ask(token, headers={}, body=b"{}", **asked)


def ended(linked: Link, count: int = 1) -> list[Ended]:
    """The tries that end next, as many as are wanted."""
    found: list[Ended] = []
    until = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < until
        found += linked.ended()
        descriptor, deadline = linked.fileno(), linked.deadline()
        if len(found) < count and descriptor is not None and deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            select.select([descriptor], [], [], left + 0.01)
    return found


def pid_of(linked: Link) -> int:
    """The process."""
    assert linked._process is not None
    return linked._process.pid


def test_tries_run_beside_each_other_and_each_says_how_it_ended(linked: Link) -> None:
    """The quick one does not wait for the slow one."""
    assert linked.fileno() is None
    assert ask(linked, "slow", "sleep", "600") is None
    assert ask(linked, "quick", "sh", "-c", "cat; echo; echo said; exit 4") is None
    assert ask(linked, "none", "/no/such/program") is None
    found = {token: (is_answered, said) for token, is_answered, said, _ in ended(linked, 2)}
    assert found["quick"] == (False, "exit code 4: {} said")
    assert found["none"][0] is False
    assert "No such file" in found["none"][1]


def test_a_process_that_hangs_is_given_up_with_its_tries(linked: Link) -> None:
    """Hooks go on although it was stopped, or its machine swaps."""
    assert ask(linked, "first", "true") is None
    assert ended(linked)[0][:3] == ("first", True, "exit code 0")
    hung = pid_of(linked)
    os.kill(hung, signal.SIGSTOP)
    linked._try_s = 0.2
    assert ask(linked, "second", "true") is None
    assert ended(linked)[0][:3] == ("second", False, "the hooks process hangs")
    wait_gone(hung)
    linked._try_s = 20.0
    assert ask(linked, "third", "true") is None
    assert ended(linked)[0][:2] == ("third", True)
    assert pid_of(linked) != hung


def test_a_process_that_does_not_read_is_given_up(linked: Link) -> None:
    """Its pipe is full: the server does not wait for it."""
    assert ask(linked, "first", "true") is None
    ended(linked)
    os.kill(pid_of(linked), signal.SIGSTOP)
    fault = None
    for number in range(100):
        fault = ask(linked, f"t{number}", "true", "x" * 4000)
        if fault is not None:
            break
    assert fault is not None
    assert "the hooks process cannot be asked" in fault
    assert {it[2] for it in ended(linked, number)} == {"the hooks process hangs"}
    assert ask(linked, "last", "true") is None
    assert ended(linked)[0][:2] == ("last", True)


def test_a_killed_process_leaves_no_command(linked: Link) -> None:
    """It is tried again, and would run twice."""
    assert ask(linked, "first", "sleep", "1000") is None
    until(lambda: descendants(pid_of(linked)))
    (command,) = descendants(pid_of(linked))
    os.kill(pid_of(linked), signal.SIGKILL)
    assert ended(linked)[0][:3] == ("first", False, "the hooks process died")
    wait_gone(command)


def test_a_process_with_nothing_to_do_is_ended(linked: Link) -> None:
    """It takes 20 MB, and hooks are rare."""
    assert ask(linked, "first", "true") is None
    ended(linked)
    pid = pid_of(linked)
    deadline = linked.deadline()
    assert deadline is not None
    assert list(linked.ended()) == []
    assert linked.fileno() is not None
    time.sleep(max(0.0, deadline - time.monotonic()))
    assert list(linked.ended()) == []
    assert linked.fileno() is None
    assert linked.deadline() is None
    wait_gone(pid)
