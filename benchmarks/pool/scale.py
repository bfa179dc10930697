"""Acquire and release with a thousand idle services in the pool, against ten.

The services are Python's, forked from the template, each a process with its connection; the cycle
takes the one that was used last.
"""

from __future__ import annotations

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.machine import raise_open_files
from benchmarks.pool.acquire import forebay, time_batches
from benchmarks.stopwatch import Figures

MANY, FEW = 1_000, 10


def cycles_beside_idle(cycles: int, warm_up: int, idle: int) -> Figures:
    """One thread, with so many services in the pool."""
    raise_open_files()  # a service's client holds its connection and its pidfd
    return forebay(time_batches, services=idle, cycles=cycles, warm_up=warm_up)


def _contestant(idle: int) -> Contestant:
    options, quick = {"cycles": 400_000, "warm_up": 5_000, "idle": idle}, {"cycles": 150_000}
    function = "benchmarks.pool.scale:cycles_beside_idle"
    return Contestant(f"forebay, {idle:,} idle", function, OWN, options, quick)


CLAIMS = [Claim("pool.scale.idle_1000.vs_10", _contestant(MANY), _contestant(FEW), "p50", "us")]
