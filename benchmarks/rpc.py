"""The claims of rpc: one module per subject, each with its contestants and its `CLAIMS`."""

from __future__ import annotations

from benchmarks import rpc_call, rpc_limit, rpc_pipelined, rpc_stream
from benchmarks.claim import Claim

# One line per subject; in each round they run in this order.
SUBJECTS = (
    rpc_call,
    rpc_limit,
    rpc_pipelined,
    rpc_stream,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
