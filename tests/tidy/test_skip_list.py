"""A skip that nobody listed fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.skip_list import TESTS, Allowed, allowed, alternatives

ROOT = TESTS.parent
CONFTEST = """
from tests.skip_list import SkipList

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipList())
"""
MODULE = """
import pytest

def test_that_passes(): pass

@pytest.mark.skip(reason={reason!r})
def test_that_is_skipped(): pass
"""


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(
    ("reason", "code"),
    [("the moon is full", 1), ("gcc is not installed; to have it: apt-get install gcc", 0)],
)
def test_an_unlisted_reason_fails_the_run(
    tmp_path: Path, reason: str, code: int, processes: str
) -> None:
    """By its exit status, and by name, with one process and with several."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_one.py").write_text(MODULE.format(reason=reason))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes]
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("test_that_is_skipped: skipped: the moon is full" in done.stdout) == (code == 1)


def test_a_pattern_has_the_shells_alternatives() -> None:
    """One row serves several folders."""
    assert alternatives("{a,b}/c") == ("a/c", "b/c")
    assert alternatives("a/*") == ("a/*",)


@pytest.mark.parametrize("row", allowed(), ids=lambda row: row.reason.pattern[:40])
def test_a_row_is_of_files_that_exist(row: Allowed) -> None:
    """A row of a file that went is taken out, or it allows what nobody meant."""
    files = [path for pattern in row.patterns for path in TESTS.glob(f"**/{pattern}")]
    assert files or row.patterns == ("*",)
