"""CPython's own tests of process pools pass on our executor; those left out are listed."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executor.cpython.skips import SKIPS

ROOT = Path(__file__).parents[3]
VENDORED = ROOT / "tests/vendored/cpython"
TIMEOUT_S = 280
PASSED_MIN = 40


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tests_of_process_pools_pass():
    """What is written for ProcessPoolExecutor works with ours."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the copied tests are those of CPython 3.11")
    if importlib.util.find_spec("test.support") is None:
        pytest.skip("this interpreter comes without test.support; install its test package")
    done = subprocess.run(
        [sys.executable, "-m", "tests.executor.cpython.run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-10_000:]
    ran = re.search(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    assert ran is not None
    assert int(ran[1]) >= PASSED_MIN, done.stderr[-10_000:]


def test_the_copy_is_unmodified():
    """Nobody has bent a test until it passed."""
    rows = re.findall(r"^\| `([^`]+)` \| `([0-9a-f]{40})` \|$", _readme(), re.MULTILINE)
    assert rows
    for name, blob in rows:
        content = (VENDORED / name).read_bytes()
        assert hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == blob, name


def test_every_test_left_out_is_in_the_docs_with_its_reason():
    """A reader of the docs knows what was not tested."""
    page = (ROOT / "docs/guides/futures.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `*")]
    assert rows == [f"| `{pattern}` | {reason} |" for pattern, reason in SKIPS.items()]


def _readme() -> str:
    return (VENDORED / "README.md").read_text()
