"""The claims of the transport: one module per subject, each with its `CLAIMS`.

Client and server are processes of their own, coroutines on both sides, TCP_NODELAY everywhere; of
every answer the length and both ends are checked. `transport_round` has the rounds.
"""

from __future__ import annotations

from benchmarks import (
    transport_cluster,
    transport_comm,
    transport_echo,
    transport_flows,
    transport_gil,
    transport_own,
    transport_scale,
)
from benchmarks.claim import Claim

# One line per subject; in each round they run in this order.
SUBJECTS = (
    transport_echo,
    transport_flows,
    transport_own,
    transport_scale,
    transport_gil,
    transport_comm,
    transport_cluster,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
