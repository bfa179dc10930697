"""The claims of the pool: one module per subject, each with its contestants and its `CLAIMS`."""

from __future__ import annotations

from benchmarks.claim import Claim
from benchmarks.pool import acquire, branch, cycle, fork, fresh, gym, scale, shared

# One line per subject; in each round they run in this order.
SUBJECTS = (
    fork,
    acquire,
    cycle,
    fresh,
    branch,
    gym,
    shared,
    scale,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
