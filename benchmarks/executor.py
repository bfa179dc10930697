"""The claims of the executor: one module per subject, each with its `CLAIMS`."""

from __future__ import annotations

from benchmarks import (
    executor_futures,
    executor_latency,
    executor_log,
    executor_scale,
    executor_spawn,
    executor_throughput,
)
from benchmarks.claim import Claim

# One line per subject; in each round they run in this order.
SUBJECTS = (
    executor_throughput,
    executor_latency,
    executor_futures,
    executor_spawn,
    executor_log,
    executor_scale,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
