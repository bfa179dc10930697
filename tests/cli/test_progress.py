"""Progress where there is no terminal: few lines, and for programs JSON."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from typing import Any

import pytest

from forebay._pace import Pace
from forebay.cli import progress
from forebay.cli.display import display
from forebay.cli.progress import JsonDisplay, LineDisplay


def step(done: float, total: float | None = 100, **more: Any) -> dict[str, Any]:
    return {"event": "progress", "done": done, "total": total, **more}


def test_a_line_stands_for_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    """A log of a thousand steps stays readable."""
    shown = LineDisplay()
    for done in range(101):
        shown.event("id", "tune", step(done))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("tune id: 10% (10 of 100)")
    assert lines[-1].startswith("tune id: 100% (100 of 100)")


def test_a_line_stands_for_half_a_minute_where_it_is_slow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it tells count, rate and message."""
    now = [0.0]
    monkeypatch.setattr("forebay._pace.time.monotonic", lambda: now[0])
    shown = LineDisplay()
    for done in range(7):
        shown.event("id", "", step(done, None, unit="files", message="reading"))
        now[0] += 10.0
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["id: 3 files, 0.1 files/s, reading", "id: 6 files, 0.1 files/s, reading"]


def test_the_time_left_is_told() -> None:
    """From the rate since the first event."""
    pace = Pace()
    pace.take(step(0))
    pace._began -= 10.0
    pace.take(step(20))
    assert pace.text() == "20% (20 of 100), 2 steps/s, 40.0 s left"


def test_a_reason_is_told_when_it_lasts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of a worker takes milliseconds, and nobody wants to read of it."""
    monkeypatch.setattr(progress, "REASON_S", 0.5)
    shown = LineDisplay()
    with shown:
        shown.event("a", "tune", {"event": "reason", "reason": "waiting: for memory"})
        shown.event("b", "tune", {"event": "reason", "reason": "waiting: for a worker"})
        shown.event("b", "tune", {"event": "status", "status": "running"})
        timer = shown._timer
        assert isinstance(timer, threading.Timer)
        timer.join(10)
    assert capsys.readouterr().err == "tune a: waiting: for memory\n"


def test_events_are_json_lines_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A dashboard of somebody else reads them."""
    shown = display(argparse.Namespace(progress="json", quiet=False, color="auto"))
    shown.event("id", "tune", step(1))
    told = json.loads(capsys.readouterr().err)
    assert (told["schema"], told["id"], told["done"]) == (1, "id", 1)
    assert not display(argparse.Namespace(progress="none", quiet=False, color="auto")).wanted


def test_a_line_of_progress_does_not_cut_a_line_of_a_log(capsys: pytest.CaptureFixture[str]):
    """A log comes in pieces; what is told between two of them waits for the end of the line."""
    with LineDisplay() as shown:
        shown.write("gr")
        shown.event("1", "echo", {"event": "progress", "done": 1, "total": 4})
        shown.write("een\nand ")
        shown.event("1", "echo", {"event": "progress", "done": 2, "total": 4})
        shown.event("1", "echo", {"event": "progress", "done": 4, "total": 4})
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "green",
        "echo 1: 25%",
        "and ",
        "echo 1: 100%",
    ]


def test_an_event_in_json_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """A program reads every event at once, also while a log has not ended its line."""
    with JsonDisplay() as shown:
        shown.write("gr")
        shown.event("1", "echo", step(1))
        shown.event("1", "echo", step(2))
        shown.write("een\n")
        shown.event("1", "echo", step(3))
        shown.write("")
        shown.write("and ")
        shown.write("more")
    sys.stderr.write("{}\n")
    lines = capsys.readouterr().err.split("\n")
    assert [json.loads(line)["done"] for line in lines if line.startswith('{"')] == [1, 2, 3]
    logged = [line for line in lines if not line.startswith('{"')]
    assert logged == ["gr", "een", "and more", "{}", ""]
