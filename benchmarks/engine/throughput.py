"""No-op requests on a Dask cluster, by a server with an engine and as the cluster's own futures.

A LocalCluster of two processes with one thread each, whose scheduler is in the process of the
client, for both; 1,024 requests are in flight and every result is taken. Ours are submitted and
taken one by one, and are durable: each request and each end is on the disk before it is told. Its
two workers are two tasks of the cluster; Dask's futures are a task each. A future by itself costs
Dask's client and scheduler milliseconds, so that Dask also runs with batches of 256, by `map` and
`gather`; its better figure counts.
"""

from __future__ import annotations

from typing import Any

from benchmarks.claim import Claim, Contestant
from benchmarks.stopwatch import Figures

WORKERS = 2
IN_FLIGHT = 1024
BATCH = 256
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


class _Batches:
    """Futures of a client that are made and gathered in batches; handles are numbers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._futures: dict[int, list[Any]] = {}
        self._results: dict[int, int] = {}

    def submit(self, index: int) -> int:
        """Submit the batch that a number begins."""
        from benchmarks.executor.noop import noop

        if index % BATCH == 0:
            numbers = range(index, index + BATCH)
            self._futures[index] = self._client.map(noop, numbers, pure=False)
        return index

    def take(self, index: int) -> int:
        """The result of a number; at the first one of a batch those of the batch are gathered."""
        if index % BATCH == 0:
            results = self._client.gather(self._futures.pop(index))
            self._results = dict(enumerate(results, index))
        return self._results.pop(index)


def futures_in_batches(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Futures of the cluster by its way for many."""
    from distributed import Client, LocalCluster

    from benchmarks.executor.load import Queue, flood

    new: Any = Client  # which has no types
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        new(cluster) as client,
    ):
        batches = _Batches(client)
        queue = Queue(batches.submit, batches.take)
        return flood(queue, requests=requests, in_flight=in_flight, warm_up=warm_up)


def _contestant(name: str, function: str, full: int, quick: int) -> Contestant:
    options = {"workers": WORKERS, "requests": full, "in_flight": IN_FLIGHT, "warm_up": 4 * BATCH}
    return Contestant(name, function, "main", options, {"requests": quick})


CLAIMS = [
    Claim(
        "engine.dask.throughput.vs_dask",
        _contestant(
            "no-ops of a server on Dask, durable",
            "benchmarks.engine.throughput:served_by_dask",
            40_960,
            10_240,
        ),
        _contestant(
            "Dask futures in batches",
            "benchmarks.engine.throughput:futures_in_batches",
            20_480,
            10_240,
        ),
        "no-op/rate",
        "1/s",
        higher_is_better=True,
        variants=(
            _contestant(
                "Dask futures one by one", "benchmarks.executor.peers.clusters:dask", 2_560, 1_024
            ),
        ),
        rounds_min=ROUNDS,
        note="each request and each end of ours is on the disk before it is told",
    ),
]
