"""The demo as a newcomer meets it: what it prints, what it leaves, how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where a demo puts its temporary files; also marks its processes in their environment."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def start(scratch: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "examples.gcc_tuning", *arguments]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    text, _ = process.communicate(timeout=100)
    return text


def processes_of(scratch: Path) -> Iterator[int]:
    mark = f"TMPDIR={scratch}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue  # it ended meanwhile, or is another user's


def sockets_of(demo: subprocess.Popen[str]) -> list[Path]:
    """Where the server of a demo had its sockets."""
    return list(Path("/tmp").glob(f"gcc-tuning-{demo.pid}-*"))


def assert_nothing_left(scratch: Path, demo: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 5
    while left := [*processes_of(scratch), *os.listdir(scratch), *sockets_of(demo)]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.02)


def test_help_shows_how_to_use_it(scratch: Path) -> None:
    """Examples teach faster than options."""
    process = start(scratch, "--help")
    text = finish(process)
    assert process.returncode == 0
    assert "--budget" in text
    assert "python -m examples.gcc_tuning --act one" in text


def test_an_unknown_program_is_told_with_those_there_are(scratch: Path) -> None:
    """A typing mistake costs a second, not a run."""
    process = start(scratch, "--programs", "lz,nowhere")
    text = finish(process)
    assert process.returncode == 2
    assert "no program 'nowhere'; there are: big_integer, hash_table" in text


@pytest.mark.timeout(120)
def test_act_one_measures_and_explains(scratch: Path) -> None:
    """Cold and warm, the cause of a death, and the replacement of a hung service."""
    process = start(scratch, "--act", "one")
    text = finish(process)
    assert process.returncode == 0, text
    for words in ("cold:", "warm:", "SIGKILL", "hung, given up at 1 s"):
        assert words in text
    assert text.count("the next service answered") == 2
    assert_nothing_left(scratch, process)


@pytest.mark.timeout(120)
def test_act_two_ends_with_a_table_a_picture_and_the_flags(scratch: Path, tmp_path: Path) -> None:
    """What was found is there to be used."""
    output = tmp_path / "output"
    options = ("--budget", "10", "--programs", "lz,hash_table", "--output", str(output))
    process = start(scratch, "--act", "two", *options)
    text = finish(process)
    assert process.returncode == 0, text
    assert "on purpose" in text
    assert "one trial lost" in text
    assert "was killed by signal 9 (SIGKILL)" in text.partition("$ forebay logs")[2]
    for way in ("requests on warm", "thread pool", "a fresh process a trial"):
        assert way in text
    assert "20 trials" in text.partition("The same search in three ways")[2]
    assert str(output / "bytes_against_trials.png") in text
    assert (output / "bytes_against_trials.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    rows = json.loads((output / "best_flags.json").read_text())
    assert [row["program"] for row in rows] == ["lz", "hash_table"]
    assert all(row["check"] == "good" for row in rows)
    assert all(row["best_bytes"] <= row["base_bytes"] for row in rows)
    assert_nothing_left(scratch, process)


MOMENTS = [("one", "Act one"), ("one", "the next"), ("two", "/40"), ("two", "The same")]


def stop(scratch: Path, number: signal.Signals, act: str, words: str) -> None:
    """Stop the demo when it has printed `words`."""
    budget = "6" if words == "The same" else "40"
    process = start(scratch, "--act", act, "--budget", budget, "--programs", "lz,sha256")
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            break
    process.send_signal(number)
    rest = finish(process)
    assert process.returncode == 128 + number, rest
    assert rest.splitlines()[-1] == f"stopped by {number.name}; nothing is left behind"
    assert "Traceback" not in rest
    assert_nothing_left(scratch, process)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("act", "words"), MOMENTS)
def test_it_can_be_interrupted_at_any_time(scratch: Path, act: str, words: str) -> None:
    """One line, the shell's exit code, and no process or file stays."""
    stop(scratch, signal.SIGINT, act, words)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("act", "words"), MOMENTS)
def test_it_can_be_terminated_at_any_time(scratch: Path, act: str, words: str) -> None:
    """A supervisor's SIGTERM is as good as Ctrl-C."""
    stop(scratch, signal.SIGTERM, act, words)


SWALLOWED = """
import os, signal, sys, time
from examples.gcc_tuning.stopping import Stopped, arm

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

arm()
try:
    Finalized()
    time.sleep(20)
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""


def test_a_signal_within_a_finalizer_stops_it_too() -> None:
    """Python ignores what a finalizer raises, so that the first Ctrl-C would be lost."""
    command = [sys.executable, "-c", SWALLOWED]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=15)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGINT, "")
