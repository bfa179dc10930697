"""Nodes and schedulers are killed and stopped while clients submit: nothing is lost or run twice.

What dies when is decided by a seed. Runs are counted by the requests themselves, in a ledger.
`make chaos` kills 50 times under 1,000 requests; FOREBAY_ENGINE_KILLS says how many, and
FOREBAY_CHAOS_SEED repeats the decisions of a run.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import pytest

from forebay.testing import chaos
from tests.executor.engine.kills import NODE_TIMEOUT_S, REQUESTS_A_KILL, STOPS_S, TOLD_S, Kills
from tests.executor.serving import until

KILLS = int(os.environ.get("FOREBAY_ENGINE_KILLS", "4"))
SEED = int(os.environ.get("FOREBAY_CHAOS_SEED", str(secrets.randbits(16))))
FEW = 8
"""With fewer kills a stop is one that loses the node, and no longer than that takes."""


@pytest.mark.slow
@pytest.mark.timeout(120 + 30 * KILLS)
def test_nothing_is_lost_or_run_twice_whatever_dies_of_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Accepted means that it ends, once; a loss is told within two seconds."""
    began = time.monotonic()
    stops_s = STOPS_S if KILLS >= FEW else (NODE_TIMEOUT_S + 1.0,) * 2
    kills = Kills(tmp_path, KILLS, SEED, stops_s)
    with chaos.nothing_left(timeout=15.0):
        try:
            with kills.cluster:
                kills.serving.start()
                asyncio.run(kills.run())
                os.kill(kills.serving.pid, signal.SIGTERM)
                assert kills.serving.ended() == signal.SIGTERM
                until(lambda: not kills.cluster.tasks(), why=kills.cluster.tasks)
        finally:
            kills.serving.close()
    verdict, delays = kills.verdict(), kills.delays()
    late = {key: f"{delay:.2f} s" for key, delay in delays.items() if delay > TOLD_S}
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {SEED}, {time.monotonic() - began:.0f} s, {dict(kills.struck)}\n"
            f"{verdict}\nlost {len(delays)}, told after {max(delays.values(), default=0):.2f} s"
            f" at most\n"
        )  # the figures are what chaos is run for
    verdict.raise_if_wrong()
    assert not late, late
    assert sum(kills.struck.values()) == KILLS
    assert verdict.accepted == KILLS * REQUESTS_A_KILL
