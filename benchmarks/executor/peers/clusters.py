"""Clusters of futures under the executor's load: Dask's and Ray's, on this machine."""

from __future__ import annotations

from typing import Any

from benchmarks.executor.load import Queue, flood
from benchmarks.executor.noop import noop
from benchmarks.ray_cluster import running_ray
from benchmarks.stopwatch import Figures


def dask(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Dask futures on a LocalCluster of processes with one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def submit(index: int) -> Any:
            return client.submit(noop, index, pure=False)  # pure: the same call is done once

        def take(future: Any) -> int:
            result: int = future.result()
            return result

        queue = Queue(submit, take)
        return flood(queue, requests=requests, in_flight=in_flight, warm_up=warm_up)


def ray(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Ray tasks."""
    with running_ray(workers) as cluster:
        task = cluster.remote(noop)
        queue: Queue[Any] = Queue(task.remote, cluster.get)
        return flood(queue, requests=requests, in_flight=in_flight, warm_up=warm_up)
