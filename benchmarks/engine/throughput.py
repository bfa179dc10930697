"""No-op requests on a Dask cluster, by a server with an engine and as the cluster's own futures.

A LocalCluster of two processes with one thread each, whose scheduler is in the process of the
client, for both; 1,024 requests are in flight, submitted one by one, and every result is taken.
Ours is durable: each request and each end is on the disk before it is told. Its two workers are two
tasks of the cluster; Dask's futures are a task each.
"""

from __future__ import annotations

from benchmarks.claim import Claim, Contestant
from benchmarks.stopwatch import Figures

WORKERS = 2
IN_FLIGHT = 1024
WARM_UP = 1_000
ROUNDS = 5


def served_by_dask(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Requests of our server on a LocalCluster."""
    from distributed import LocalCluster

    from benchmarks.executor.forebay import queue, served
    from benchmarks.executor.load import flood
    from benchmarks.transport.entry_points import announce

    announce()
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        served(workers, ENGINE="dask", SCHEDULER=cluster.scheduler_address) as client,
    ):
        return flood(queue(client), requests=requests, in_flight=in_flight, warm_up=warm_up)


def _contestant(name: str, function: str, full: int, quick: int) -> Contestant:
    options = {"workers": WORKERS, "requests": full, "in_flight": IN_FLIGHT, "warm_up": WARM_UP}
    return Contestant(name, function, "main", options, {"requests": quick})


CLAIMS = [
    Claim(
        "engine.dask.throughput.vs_dask",
        _contestant(
            "no-ops of a server on Dask, durable",
            "benchmarks.engine.throughput:served_by_dask",
            30_000,
            10_000,
        ),
        _contestant(
            "no-ops as Dask futures", "benchmarks.executor.peers.clusters:dask", 5_000, 2_500
        ),
        "no-op/rate",
        "1/s",
        higher_is_better=True,
        rounds_min=ROUNDS,
        note="each request and each end of ours is on the disk before it is told",
    ),
]
