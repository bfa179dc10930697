"""A wall clock that is set while a server runs, or between two servers."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from forebay.testing.experiment.clock import SOURCE
from tests.executor.serving import Serving, until
from tests.preloaded import compiled

DAY_S = 86_400
APP = """
import os, time
import forebay
app = forebay.App("clocks")

@app.request()
def note(path: str) -> str:
    with open(path, "a") as file:
        file.write("ran\\n")
    return path

@app.request(cron="{cron}")
def scheduled() -> None:
    pass
"""

pytestmark = pytest.mark.needs("gcc")  # for the moved clock


class WallClock:
    """The wall clock of the processes that run under it; a test sets it."""

    def __init__(self, directory: Path) -> None:
        self.library = compiled(SOURCE, directory)
        self.file = directory / "shift"
        self.set(0)

    def set(self, seconds: float) -> None:
        """So far from the machine's, from now on."""
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, struct.pack("q", int(seconds * 1000)), 0)
        os.close(descriptor)

    def serving(self, directory: Path, cron: str = "0 0 1 1 *", **settings: Any) -> Serving:
        """A server under it, which looks for what is too old ten times a second."""
        serving = Serving(
            directory, APP.format(cron=cron), **settings, retention_every_ms=100, max_workers=2
        )
        serving.environment["LD_PRELOAD"] = str(self.library)
        serving.environment["WALL_CLOCK"] = str(self.file)
        return serving


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    """A clock of the test's own."""
    return WallClock(tmp_path)


@pytest.fixture
def server(wall: WallClock, tmp_path: Path) -> Iterator[Serving]:
    """A server that keeps what has ended for a week."""
    serving = wall.serving(tmp_path)
    yield serving
    serving.close()


@pytest.mark.parametrize("jump_s", [8 * DAY_S, -8 * DAY_S])
def test_fresh_results_outlive_a_step_of_the_clock(
    wall: WallClock, server: Serving, tmp_path: Path, jump_s: float
) -> None:
    """Results of a minute ago were deleted once a late NTP or a resumed machine set the clock."""
    server.start()
    with server.caller() as caller:
        path = str(tmp_path / "notes")
        before = caller.submit("note", path=path)
        assert caller.wait(before) == path
        wall.set(jump_s)
        after = caller.submit("note", path=path)
        assert caller.wait(after) == path
        looks = until(lambda: _prune_looks(caller), 20)
        assert looks, "the server has looked for old requests several times"
        assert caller.wait(before) == path
        assert caller.wait(after) == path


def _prune_looks(caller: Any, count: int = 8) -> int:
    """Wait out several looks at what is too old: each is an answer that the same thread gives."""
    deadline = time.monotonic() + 0.1 * count
    while time.monotonic() < deadline:
        caller.ask("prune", {"older_s": 365 * DAY_S, "dry_run": True})
    return count


@pytest.mark.parametrize("ahead_s", [DAY_S, -8 * DAY_S])
def test_results_and_delays_outlive_a_clock_that_was_wrong_until_the_restart(
    wall: WallClock, server: Serving, tmp_path: Path, ahead_s: float
) -> None:
    """A delay of 2 s waited a day, or not at all, once the next server had the right clock."""
    path = tmp_path / "delayed"
    wall.set(ahead_s)
    server.start()
    with server.caller() as caller:
        ended = caller.submit("note", path=str(tmp_path / "ended"))
        assert caller.wait(ended)
        soon = caller.submit("note", {"delay_s": 2.0}, path=str(path))
        later = caller.submit("note", {"delay_s": 3_600.0}, path=str(tmp_path / "later"))
    server.kill()
    wall.set(0)
    server.start()
    with server.caller() as caller:
        assert caller.wait(soon) == str(path)
        _prune_looks(caller)
        assert caller.wait(ended), "what ended a moment ago is kept"
        assert caller.ask("status", later)["status"] == "queued"
        assert not (tmp_path / "later").exists()


def test_a_schedule_follows_the_clock_of_the_wall(wall: WallClock, tmp_path: Path) -> None:
    """After a step forward, schedules fired by the old clock until the server was started again."""
    now = int(time.time())
    # Half a day from now; the clock is set to a few seconds before it.
    at = now - now % 60 + DAY_S // 2
    fields = time.gmtime(at)
    serving = wall.serving(tmp_path, cron=f"{fields.tm_min} {fields.tm_hour} * * *")
    try:
        serving.start()
        with serving.caller() as caller:
            wall.set(at - time.time() - 1)
            seen = until(lambda: caller.ask("schedules")["schedules"][0]["last"], 60)
            assert caller.wait(seen) is None
            until(lambda: _next_at(caller) == at + DAY_S, 30)
            # Back by half a day: that clock was wrong, and the right one comes to this time too.
            wall.set(0)
            until(lambda: _next_at(caller) == at, 40)
    finally:
        serving.close()


def _next_at(caller: Any) -> float:
    due: str = caller.ask("schedules")["schedules"][0]["next_at"]
    return datetime.fromisoformat(due).timestamp()
