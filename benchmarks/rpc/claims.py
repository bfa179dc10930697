"""The claims of rpc: one module per subject, each with its contestants and its `CLAIMS`."""

from __future__ import annotations

from benchmarks.claim import Claim
from benchmarks.rpc import call, limit, pipelined, stream

# One line per subject; in each round they run in this order.
SUBJECTS = (
    call,
    limit,
    pipelined,
    stream,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
