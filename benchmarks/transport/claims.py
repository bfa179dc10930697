"""The claims of the transport: one module per subject, each with its `CLAIMS`.

Client and server are processes of their own, coroutines on both sides, TCP_NODELAY everywhere; of
every answer the length and both ends are checked. `round` has the rounds.
"""

from __future__ import annotations

from benchmarks.claim import Claim
from benchmarks.transport import cluster, comm, echo, flows, gil, own, scale

# One line per subject; in each round they run in this order.
SUBJECTS = (
    echo,
    flows,
    own,
    scale,
    gil,
    comm,
    cluster,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
