"""The claims of the pool: one module per subject, each with its contestants and its `CLAIMS`."""

from __future__ import annotations

from benchmarks import (
    pool_acquire,
    pool_branch,
    pool_cycle,
    pool_fork,
    pool_fresh,
    pool_gym,
    pool_scale,
    pool_shared,
)
from benchmarks.claim import Claim

# One line per subject; in each round they run in this order.
SUBJECTS = (
    pool_fork,
    pool_acquire,
    pool_cycle,
    pool_fresh,
    pool_branch,
    pool_gym,
    pool_shared,
    pool_scale,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
