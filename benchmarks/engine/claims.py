"""The claims of the engines: one module per subject, each with its `CLAIMS`."""

from __future__ import annotations

from benchmarks.claim import Claim
from benchmarks.engine import dask_comms, throughput

# One line per subject; in each round they run in this order.
SUBJECTS = (throughput, dask_comms)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
