"""Outages: a receiver, a server or its hooks process goes away, and no call is lost."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.executor.client_fixtures import small_disk
from tests.executor.server.hooks.hooked import APP, QUICK, delivered, fail, ids_of, log_of, webhook
from tests.executor.server.hooks.receiver import Receiver, late
from tests.executor.serving import RefusedError, Serving, descendants, until

KILLS = int(os.environ.get("FOREBAY_HOOK_KILLS", "4"))
TIMES = float(os.environ.get("FOREBAY_HOOK_TIMES", "0.05"))
"""Of the seconds between two tries."""


def test_a_receiver_that_was_down_hears_of_everything(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """A restart of the receiver costs no event, and requests went on meanwhile."""
    receiver.stop()
    serving = serve(webhook(receiver), hook_waits_s=[0.2, 0.5, 2.0, 30.0])
    with serving.caller() as caller:
        ids = fail(caller, 20)
        until(lambda: sum(one["try"] >= 2 for one in log_of(caller)) > 4)
        assert caller.run("adds", a=1, b=2) == 3
        receiver.start()
        heard = ids_of(receiver, ids)
        delivered(serving)
    assert sorted(heard) == sorted(ids)


@pytest.mark.timeout(600)
def test_a_receiver_that_is_down_for_a_minute_hears_of_everything(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """The times of the tries cover a minute: with `TIMES` 1 a real one."""
    receiver.stop()
    serving = serve(webhook(receiver), hook_waits_s=[TIMES * it for it in (5, 30, 120, 600)])
    with serving.caller() as caller:
        begun = time.monotonic()
        ids = fail(caller, 5)
        until(lambda: time.monotonic() - begun > TIMES * 60, 70)
        assert caller.run("adds", a=1, b=2) == 3
        receiver.start()
        heard = ids_of(receiver, ids, timeout=200)
        delivered(serving)
    assert sorted(heard) == sorted(ids)


@pytest.mark.timeout(900)
def test_a_killed_server_loses_no_call(serve: Callable[..., Serving], receiver: Receiver) -> None:
    """SIGKILL between the end of a request and its delivery: the next server delivers."""
    serving = serve(webhook(receiver))
    ids = []
    for number in range(KILLS):
        with serving.caller() as caller:
            submitted = [caller.submit("fails", number=it) for it in range(8)]
            with pytest.raises(RefusedError):
                caller.wait(submitted[number % 8])
            ids += submitted
        serving.kill()
        serving.start()
    heard = ids_of(receiver, ids)
    delivered(serving)
    while not receiver.calls.empty():
        heard.append(receiver.call().told["request"]["id"])
    assert set(heard) == set(ids)


def test_a_call_is_removed_by_a_server_that_starts_on_a_full_disk(
    receiver: Receiver, tmp_path: Path
) -> None:
    """The one before was killed at its delivery: else each restart would deliver again."""
    released = threading.Event()
    receiver.answers = [late(released)]
    hooks = {"hooks": [webhook(receiver)], **QUICK}
    with small_disk(tmp_path, "16m") as disk, Serving(tmp_path, APP, **hooks) as serving:
        with serving.caller() as caller:
            fail(caller)
        first = receiver.call()
        full = subprocess.run(
            ["dd", "if=/dev/zero", f"of={disk / 'ballast'}", "bs=4k", "status=none"], check=False
        )
        assert full.returncode
        serving.kill()
        released.set()
        serving.start()
        assert receiver.call().id == first.id
        delivered(serving)
        assert receiver.calls.empty()


def test_a_killed_hooks_process_loses_no_call(
    serve: Callable[..., Serving], receiver: Receiver
) -> None:
    """What it was at is tried again, by another one."""
    released = threading.Event()
    receiver.answers = [late(released)]
    serving = serve(webhook(receiver))
    with serving.caller() as caller:
        (id,) = fail(caller)
        first = receiver.call()
        (pid,) = hooks_processes(serving)
        os.kill(pid, 9)
        released.set()
        second = receiver.call()
        assert second.id == first.id
        assert second.told["request"]["id"] == id
        delivered(serving)
        assert log_of(caller)[0]["said"] == "the hooks process died"


def hooks_processes(serving: Serving) -> list[int]:
    """The hooks processes of a server."""

    def line(pid: int) -> bytes:
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return b""

    return [pid for pid in descendants(serving.pid) if b"server.hooks.process" in line(pid)]
