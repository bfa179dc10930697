"""One durable request at a time, submit to result: ours against the better of two peers.

Huey commits to SQLite with fsync, Procrastinate to PostgreSQL with its defaults, ours to SQLite at
synchronous=FULL; all of them on the same disk, whose fsync is measured beside ours.
"""

from __future__ import annotations

from benchmarks.claim import OWN, Claim, Contestant


def _contestant(name: str, function: str, environment: str) -> Contestant:
    options = {"workers": 2, "requests": 1_000, "warm_up": 50}
    return Contestant(name, function, environment, options, {"requests": 300})


FOREBAY = _contestant("forebay, one at a time", "benchmarks.executor.forebay:durable_alone", OWN)
HUEY = _contestant("Huey, fsync", "benchmarks.executor.peers.huey:with_fsync", "queues")
PROCRASTINATE = _contestant(
    "Procrastinate", "benchmarks.executor.peers.procrastinate:procrastinate", "queues"
)

CLAIMS = [
    Claim(
        "executor.latency.p50.vs_best_durable",
        FOREBAY,
        HUEY,
        "p50",
        "ms",
        variants=(PROCRASTINATE,),
    )
]
