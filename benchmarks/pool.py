"""The claims of the pool: one module per subject, each with its contestants and its `CLAIMS`."""

from __future__ import annotations

from benchmarks import pool_fork
from benchmarks.claim import Claim

SUBJECTS = (pool_fork,)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
