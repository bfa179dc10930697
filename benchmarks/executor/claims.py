"""The claims of the executor: one module per subject, each with its `CLAIMS`."""

from __future__ import annotations

from benchmarks.claim import Claim
from benchmarks.executor import events, futures, latency, log, scale, spawn, throughput

# One line per subject; in each round they run in this order.
SUBJECTS = (
    throughput,
    latency,
    futures,
    spawn,
    log,
    events,
    scale,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
