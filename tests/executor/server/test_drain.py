"""How a server ends when it is asked to."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest

from tests.executor.serving import (
    Caller,
    RefusedError,
    Serving,
    descendants,
    thread_of,
    until,
    wait_gone,
)

APP = (Path(__file__).parent / "server_app.py").read_text()


def running(path: Path) -> bool:
    return path.exists()


def refusal(caller: Caller) -> str | None:
    """Why a submission is refused; None where it is not yet."""
    try:
        caller.submit("add", a=1)
    except RefusedError as refused:
        return str(refused.told["code"])
    return None


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """What a request writes when it begins."""
    return tmp_path / "note"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_ends_and_what_comes_is_refused(tmp_path: Path, note: Path, number: int) -> None:
    """A restart of the service costs nobody their request."""
    gate = tmp_path / "gate"
    serving = Serving(tmp_path, APP)
    try:
        serving.start()
        with serving.caller() as caller:
            id = caller.submit("mark", path=str(note), gate=str(gate))
            until(lambda: running(note))
            os.kill(serving.pid, number)
            serving.hear("draining")
            assert until(lambda: refusal(caller)) == "draining"
            assert caller.ask("info")["draining"] is True
            gate.touch()
            assert isinstance(caller.wait(id), int)
        assert serving.ended() == number
    finally:
        serving.close()


def test_a_signal_that_does_not_interrupt_the_main_thread_ends_it(tmp_path: Path) -> None:
    """Neither does one that comes right before that waits; the server went on until the next."""
    serving = Serving(tmp_path, APP)
    try:
        serving.start()
        with serving.caller() as caller:
            caller.wait(caller.submit("add", a=1))  # loaded: nothing else ends the wait
        other = thread_of(serving.pid, "forebay-dispatc")
        assert ctypes.CDLL(None).tgkill(serving.pid, other, signal.SIGTERM) == 0
        assert serving.ended() == signal.SIGTERM
    finally:
        serving.close()


def test_what_waits_is_there_after_the_restart(tmp_path: Path, note: Path) -> None:
    """A drain does not run the whole queue."""
    serving = Serving(tmp_path, APP, long_workers=1, max_workers=2)
    try:
        serving.start()
        with serving.caller() as caller:
            caller.submit("mark", path=str(note), seconds=0.5)
            ids = [caller.submit("sleep", seconds=0.01) for _ in range(20)]
            until(lambda: running(note))
            os.kill(serving.pid, signal.SIGTERM)
        serving.ended()
        serving.start()
        with serving.caller() as caller:
            for id in ids:
                assert isinstance(caller.wait(id), int)
    finally:
        serving.close()


def test_the_second_signal_ends_at_once_and_leaves_no_process(tmp_path: Path, note: Path) -> None:
    """Whoever presses Ctrl-C twice means it."""
    serving = Serving(tmp_path, APP)
    try:
        serving.start()
        with serving.caller() as caller:
            caller.submit("mark", path=str(note), seconds=60.0)
            until(lambda: running(note))
        below = descendants(serving.pid)
        os.kill(serving.pid, signal.SIGTERM)
        serving.hear("draining")
        began = time.monotonic()
        os.kill(serving.pid, signal.SIGTERM)
        assert serving.ended() == signal.SIGTERM
        assert time.monotonic() - began < 15.0
        for pid in below:
            wait_gone(pid)
    finally:
        serving.close()


def test_a_drain_has_a_deadline(tmp_path: Path, note: Path) -> None:
    """A request that hangs does not keep the machine from going down."""
    serving = Serving(tmp_path, APP, drain_grace=0.3)
    try:
        serving.start()
        with serving.caller() as caller:
            id = caller.submit("mark", path=str(note), seconds=60.0)
            until(lambda: running(note))
        os.kill(serving.pid, signal.SIGTERM)
        began = time.monotonic()
        serving.ended()
        assert time.monotonic() - began < 10.0
        serving.start()
        with serving.caller() as caller, pytest.raises(RefusedError) as caught:
            caller.wait(id)
        assert caught.value.told["status"] == "failed"
        assert note.read_text() == "ran\n"
    finally:
        serving.close()


def test_a_client_may_stop_the_server(tmp_path: Path) -> None:
    """`forebay stop`: the answer comes before the end."""
    serving = Serving(tmp_path, APP)
    try:
        serving.start()
        with serving.caller() as caller:
            assert caller.ask("stop", 5.0)["stopping"] is True
        assert serving.ended() == 0
    finally:
        serving.close()
