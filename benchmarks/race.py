"""Which of a peer's variants is the one to beat, and which need not run again.

A peer that can be run in several ways counts by the best of them.
To find it not every variant has to run every round: one that a round shows far behind stays out,
and once three rounds have been run the leader alone goes on, so that a claim of nine rounds costs
no more than it must. Nobody leaves a race that it might have won by more than the machine's noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.claim import Claim

# A variant whose best round is below this share of the leader's median is out.
BEATEN = 0.5
# After so many rounds the leader is known.
DECIDED = 3

Values = Mapping[str, Sequence[float]]


def leader(claim: Claim, values: Values) -> str:
    """The peer with the best median among those that ran longest."""
    longest = max(map(len, values.values()))
    medians = {name: statistics.median(v) for name, v in values.items() if len(v) == longest > 0}
    if not medians:
        return claim.peer.name
    return (max if claim.higher_is_better else min)(medians, key=lambda name: medians[name])


def left(claim: Claim, values: Values, *, before: int) -> list[str]:
    """Peers that run in round `before`, given what the earlier rounds gave."""
    running = [name for name, series in values.items() if len(series) == before - 1]
    if before == 1 or len(running) <= 1:
        return running
    best = leader(claim, values)
    if before > DECIDED:
        return [best]
    mark = statistics.median(values[best])
    choose = max if claim.higher_is_better else min
    return [name for name in running if claim.ratio(choose(values[name]), mark) >= BEATEN]
