"""What messages take of memory while they are under way, in real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.dask.gathered import BYTES, COUNT
from tests.dask.nodes import ROOT, environment

TIMEOUT_S = 100
SLACK_BYTES = 2 * BYTES
"""What a socket's buffers and one block more or less are."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S * 2)]


def grown(scheme: str) -> int:
    """Bytes by which a process grew while it gathered `COUNT` blocks of `BYTES`."""
    outcome = subprocess.run(
        [sys.executable, str(ROOT / "tests/dask/gathered.py"), scheme],
        env=environment(sys.executable),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return int(outcome.stdout)


def test_a_gather_holds_no_more_memory_than_over_tcp() -> None:
    """A client with its scheduler in its process gathers what it could over tcp://."""
    stock, ours = grown("tcp"), grown("forebay")
    assert stock > (COUNT - 1) * BYTES
    assert ours <= stock + SLACK_BYTES
