"""The claims of the gateway: one module per subject, each with its contestants and its `CLAIMS`."""

from __future__ import annotations

from benchmarks.claim import Claim
from benchmarks.gateway import log, memory, scrape, submit

# One line per subject; in each round they run in this order.
SUBJECTS = (
    submit,
    scrape,
    log,
    memory,
)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]
