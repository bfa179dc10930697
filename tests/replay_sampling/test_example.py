"""The example of sampling a replay buffer, run small."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("--records", "4096", "--batch", "64", "--seconds", "0.2", "--rounds", "1")


def command(tmp_path: Path, *options: str) -> list[str]:
    """The example as a newcomer types it, in a folder of its own."""
    program = [sys.executable, "-m", "examples.replay_sampling", "--folder", str(tmp_path)]
    return [*program, "--picture", str(tmp_path / "replay.png"), *options]


@pytest.mark.timeout(120)
def test_it_ends_with_a_table_and_a_picture(tmp_path: Path) -> None:
    """Three ways by turns, each of which found the records that it had asked for."""
    done = subprocess.run(
        command(tmp_path, *SMALL),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for way in ("RecordFile", "np.memmap", "8 threads"):
        assert f"round 1: {way}" in done.stdout
    assert "RecordFile is so many times as fast" in done.stdout
    assert "writing replay.fbr: 16 MiB" in done.stderr
    assert (tmp_path / "replay.png").read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["replay.png"], "the file was left behind"


@pytest.mark.timeout(60)
def test_ctrl_c_removes_the_file(tmp_path: Path) -> None:
    """Who has seen enough is not left with a file of gigabytes."""
    process = subprocess.Popen(
        command(tmp_path, "--records", "100000000"), cwd=ROOT, stderr=subprocess.PIPE
    )
    with process:
        end = time.monotonic() + 30
        while not list(tmp_path.glob("replay-*/replay.fbr")):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_record_without_room_is_refused(tmp_path: Path) -> None:
    """A size that cannot be is told by name, not by a traceback of numpy's."""
    from examples.replay_sampling.records import transition
    from forebay.errors import ConfigError

    with pytest.raises(ConfigError, match="--record-bytes is 8; give more than 8"):
        transition(8)
