"""The peers at the honest limit of calls do what their rows say."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.look import spin_us
from benchmarks.stopwatch import time_calls
from tests.tidy.tree import ROOT

LOOKING = """
from benchmarks.rpc import limit as rpc_limit
figures = rpc_limit.spinning_socket_calls(calls=200, warm_up=10)
print(figures["count"], figures["mean"] > 0, figures["cpu"] > 0)
"""


def test_the_socket_that_looks_answers_every_call():
    """Ours is held against a peer that does the same work."""
    result = subprocess.run(
        [sys.executable, "-c", LOOKING], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["200", "True", "True"]


def test_peers_look_as_long_as_the_products_source_says():
    """The two cannot drift: the figure is read, not copied."""
    source = (ROOT / "crates/base/src/spin.rs").read_text()
    assert f"SPIN: Duration = Duration::from_micros({spin_us()});" in source
    limits = (ROOT / "crates/transport/src/limit.rs").read_text()
    assert "SPIN_US: u64 = SPIN." in limits


def test_paced_calls_come_no_faster_than_they_shall():
    """A thousand a second leaves both ends time to sleep, which is what is measured."""
    begun = time.monotonic()
    time_calls(lambda _: True, calls=50, warm_up=0, per_second=1_000)
    assert time.monotonic() - begun >= 0.05
