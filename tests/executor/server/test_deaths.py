"""How a worker ended is what its request says, with the last that it wrote."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.executor.serving import Caller, RefusedError, Serving

APP = '''
import os
import signal
import subprocess
import sys
import time

import forebay

app = forebay.App("deaths")


@app.request()
def raise_children(path: str, seconds: float) -> None:
    """Start a process that starts another one, and die or stay, heeding nothing."""
    script = "sleep 600 & echo $! $$ > " + path + ".new; mv " + path + ".new " + path + "; wait"
    subprocess.Popen(["sh", "-c", script])
    while not os.path.exists(path):
        os.sched_yield()
    if not seconds:
        os.kill(os.getpid(), signal.SIGKILL)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(seconds)
        except BaseException:
            pass


@app.request()
def end(how: str, number: int) -> None:
    """End the worker, after some words."""
    print("last words", flush=True)
    if how == "exit":
        os._exit(number)
    os.kill(os.getpid(), number)


@app.request()
def add(a: int) -> int:
    """Something that works."""
    return a + 1
'''
ENDS = [("exit", 3), ("exit", 0), ("signal", signal.SIGKILL), ("signal", signal.SIGSEGV)]


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[Caller]:
    """A client of a server with one worker, which every death replaces."""
    with (
        Serving(tmp_path, APP, long_workers=1, max_workers=2) as serving,
        serving.caller() as made,
    ):
        yield made


def failure_of(caller: Caller, how: str, number: int) -> dict[str, Any]:
    """What is told of a request that ends its worker."""
    with pytest.raises(RefusedError) as caught:
        caller.run("end", how=how, number=int(number))
    return caught.value.told


@pytest.mark.parametrize("warm", [False, True], ids=["fresh", "warm"])
def test_an_end_is_told_as_what_it_was(caller: Caller, *, warm: bool) -> None:
    """Exit code or signal, and the last output, also of a worker's first request."""
    for how, number in ENDS:
        if warm:
            assert caller.run("add", a=1) == 2
        told = failure_of(caller, how, number)
        assert (told["kind"], told["cause"]) == ("died", how)
        assert told["exit_code"] == (number if how == "exit" else None)
        assert told["signal"] == (number if how == "signal" else None)
        assert "last words" in told["last_output"], (how, number)
    assert caller.run("add", a=1) == 2, "the next one has a worker again"


@pytest.mark.parametrize("by", ["itself", "time"])
def test_what_a_killed_request_had_started_ends_with_it(
    caller: Caller, tmp_path: Path, by: str
) -> None:
    """Children, and theirs: they would hold memory and files for nobody."""
    path = tmp_path / "children"
    timeout = {"timeout_s": 1.0} if by == "time" else None
    seconds = 60.0 if by == "time" else 0.0
    asked = {"path": str(path), "seconds": seconds}
    with pytest.raises(RefusedError):
        caller.run("raise_children", timeout, **asked)
    children = [int(word) for word in path.read_text().split()]
    assert len(children) == 2
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(child)
            ended, _, _ = select.select([pidfd], [], [], 20)
            os.close(pidfd)
            assert ended, f"process {child} outlived its request"
