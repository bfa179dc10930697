"""`import forebay` costs little and does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LATER = ("asyncio", "msgspec", "numpy", "multiprocessing")
# System calls by which an import would start, connect or share something.
ACTS = "clone,clone3,fork,vfork,execve,socket,eventfd2,memfd_create,io_uring_setup,kill"


def test_import_loads_nothing_that_only_some_programs_need():
    """A command-line tool that uses the blocking face does not pay for asyncio."""
    script = f"import sys, forebay; print(*[name for name in {LATER} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "", "")


@pytest.mark.needs("strace")
def test_import_starts_and_connects_nothing(tmp_path: Path):
    """No thread, process, socket or signal handler comes from an import."""
    log = tmp_path / "strace"
    trace = ["strace", "--follow-forks", "--trace", ACTS, "--output", str(log)]
    subprocess.run([*trace, sys.executable, "-c", "import forebay"], check=True)
    calls = [line for line in log.read_text().splitlines() if "(" in line]
    assert [line for line in calls if "execve(" not in line] == []
    assert sum("execve(" in line for line in calls) == 1
