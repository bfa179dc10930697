"""A bounded run ends in time, with everything that it started."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from examples.gcc_tuning.bounded import OUTPUT_LIMIT_BYTES, run_bounded


def test_output_and_exit_code_come_back(tmp_path: Path) -> None:
    """The caller sees what the program said and how it ended."""
    finished = run_bounded(
        ["sh", "-c", "echo out; echo err >&2; exit 3"], directory=tmp_path, timeout=10
    )
    assert (finished.exit_code, finished.signal, finished.exceeded) == (3, None, "")
    assert sorted(finished.output.split()) == [b"err", b"out"]
    assert not finished.good


def test_a_signal_is_told_apart_from_an_exit_code(tmp_path: Path) -> None:
    """A crash is not a refusal."""
    finished = run_bounded(["sh", "-c", "kill -SEGV $$"], directory=tmp_path, timeout=10)
    assert (finished.exit_code, finished.signal) == (None, 11)


def test_grandchildren_end_with_a_missed_deadline(tmp_path: Path) -> None:
    """Gcc's cc1 is a grandchild; left alone it would burn a core for ever."""
    line = "(echo $$ > a; exec sleep 60) & (sleep 60 & echo $! > b; wait) & sleep 60"
    start = time.monotonic()
    finished = run_bounded(["sh", "-c", line], directory=tmp_path, timeout=0.5)
    assert finished.exceeded == "time"
    assert finished.exit_code is None
    assert time.monotonic() - start < 5
    grandchild = int((tmp_path / "b").read_text())
    deadline = time.monotonic() + 5
    while _runs(grandchild):
        assert time.monotonic() < deadline, f"process {grandchild} outlived its deadline"
        time.sleep(0.01)


def test_a_program_that_closes_its_output_still_has_a_deadline(tmp_path: Path) -> None:
    """The end of the output is not the end of the program."""
    finished = run_bounded(
        ["sh", "-c", "exec >&- 2>&-; exec sleep 60"], directory=tmp_path, timeout=0.3
    )
    assert finished.exceeded == "time"


def test_endless_output_is_cut(tmp_path: Path) -> None:
    """A miscompiled program that prints for ever costs neither memory nor time."""
    finished = run_bounded(["yes"], directory=tmp_path, timeout=20)
    assert finished.exceeded == "output"
    assert len(finished.output) == OUTPUT_LIMIT_BYTES


def test_a_missing_program_is_an_os_error(tmp_path: Path) -> None:
    """There is nothing to wait for."""
    with pytest.raises(FileNotFoundError):
        run_bounded(["./nowhere"], directory=tmp_path, timeout=1)


def test_temporary_files_belong_into_the_directory(tmp_path: Path) -> None:
    """What gcc leaves behind when killed goes with the directory."""
    finished = run_bounded(["sh", "-c", "echo $TMPDIR"], directory=tmp_path, timeout=10)
    assert finished.text() == str(tmp_path)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X") and os.path.exists(f"/proc/{pid}")
