"""What the tests of hooks begin with: an application whose requests fail, and what is heard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from forebay._hook_config import HookConfig
from forebay.executor.server.hooks.driver import Hooks
from tests.executor.server.hooks.receiver import Receiver
from tests.executor.serving import Caller, RefusedError, Serving, until

APP = """
import os
import time

import forebay

app = forebay.App("hooked")


@app.request()
def fails(number: int = 0) -> None:
    raise ValueError(f"number {number}\\nsecond line")


@app.request(retries=5, backoff="10ms")
def dies() -> None:
    os._exit(3)


@app.request(lane="short")
def adds(a: int, b: int) -> int:
    return a + b


@app.request()
def holds(size: int) -> None:
    held = b"x" * size
    while held:
        time.sleep(0.05)


@app.request()
def enters(password: forebay.Secret[str]) -> None:
    raise ValueError(f"no user with {password}")
"""
SECRET = b"a secret of some bytes"
QUICK = {"hook_waits_s": [0.1, 0.1, 0.1, 0.1]}
"""Tries come one upon the other."""


def webhook(receiver: Receiver, name: str = "ops", **more: Any) -> dict[str, Any]:
    """A hook that calls a receiver."""
    return {"name": name, "on": ["dead", "failed"], "url": receiver.url, **more}


def fail(caller: Caller, count: int = 1) -> list[str]:
    """Have requests fail; their ids."""
    ids = [caller.taken(it) for it in [caller.begin("fails", number=n) for n in range(count)]]
    for id in ids:
        with pytest.raises(RefusedError):
            caller.wait(id)
    return ids


def ids_of(receiver: Receiver, wanted: list[str], timeout: float = 60.0) -> list[str]:
    """The ids of requests that a receiver hears of, until it has heard of all that are wanted."""
    heard: list[str] = []
    deadline = time.monotonic() + timeout
    while not set(wanted) <= set(heard):
        heard.append(receiver.call(deadline - time.monotonic()).told["request"]["id"])
    return heard


def waiting(caller: Caller) -> int:
    """How many calls are not answered."""
    return sum(one["waiting"] for one in caller.ask("hooks")["hooks"])


def log_of(caller: Caller) -> list[dict[str, Any]]:
    """The lines of the log."""
    calls: list[dict[str, Any]] = caller.ask("hook_log", 1000)["calls"]
    return calls


def delivered(serving: Serving) -> None:
    """Until nothing waits."""
    with serving.caller() as caller:
        until(lambda: waiting(caller) == 0, why=lambda: log_of(caller))


def idle_hooks(tmp_path: Path, *on: str) -> Hooks:
    """Hooks of one hook, without a thread or a store."""
    hook = HookConfig("ops", on=on or ("dead",), url="https://a")
    return Hooks([hook], state=tmp_path, app="a.py", number=0, max_queued=100)
