"""A Dask cluster over our transport, against the same cluster over distributed's own.

A LocalCluster of two single-threaded workers, each a process, adds an array to its transpose
after a rechunk, and shuffles a table and sums it up by key; both answers are checked.
The time is that of the second such job: the first one has workers import what they need.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from typing import Any

from benchmarks.claim import Claim, Contestant
from benchmarks.stopwatch import MS, Figures, summary
from benchmarks.transport.certificates import Certificates
from benchmarks.transport.entry_points import announce

WORKERS = 2
SIDE = 3_000
CHUNK = 750
RECORDS = 200_000
KEYS = 997
PARTITIONS = 8
ROUNDS = 9


def array_job() -> None:
    """Rechunk, transpose, add, sum."""
    import dask.array as da

    count = SIDE * SIDE
    flat = da.arange(count, chunks=count // 10, dtype="float64")
    square = flat.reshape(SIDE, SIDE).rechunk((CHUNK, CHUNK))
    total = float((square + square.T).sum().compute())
    if total != count * (count - 1):
        raise ValueError(f"the array sums up to {total}")


def shuffle_job() -> None:
    """Bring records of one key together, and sum up each key's."""
    import dask.dataframe as dd
    import numpy as np
    import pandas as pd

    numbers = np.arange(RECORDS)
    table = pd.DataFrame({"key": numbers % KEYS, "value": numbers})
    shuffled = dd.from_pandas(table, npartitions=PARTITIONS).shuffle("key")
    sums = shuffled.groupby("key").value.sum().compute()
    if len(sums) != KEYS or int(sums.sum()) != RECORDS * (RECORDS - 1) // 2:
        raise ValueError(f"{len(sums)} keys sum up to {sums.sum()}")


def job(scheme: str, jobs: int) -> Figures:
    """Milliseconds of a job, array and shuffle, on a cluster of this scheme."""
    announce()
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.ERROR)
    security = _security(scheme) if "tls" in scheme else None
    samples: list[int] = []
    shares: dict[str, float] = {}
    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol=f"{scheme}://",
            dashboard_address=None,
            security=security,
        ) as cluster,
        Client(cluster) as client,
    ):
        workers = client.scheduler_info()["workers"]
        if len(workers) != WORKERS or not all(name.startswith(scheme) for name in workers):
            raise ValueError(f"the workers are {list(workers)}")
        for number in range(jobs + 1):
            shares = {each.__name__: _took(each) / MS for each in (array_job, shuffle_job)}
            if number:
                samples.append(int(sum(shares.values()) * MS))
    return summary(samples, unit_ns=MS) | shares


def _took(work: Callable[[], None]) -> int:
    started = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - started


def _security(scheme: str) -> Any:
    """One certificate for everybody in the cluster, which each shows and each checks."""
    module = "distributed.security" if scheme == "tls" else "forebay.dask"
    certificates = Certificates.make()
    roles = {
        f"tls_{role}_{kind}": path
        for role in ("client", "scheduler", "worker")
        for kind, path in (("cert", certificates.chain), ("key", certificates.key))
    }
    return importlib.import_module(module).Security(
        tls_ca_file=certificates.authority, require_encryption=True, **roles
    )


def _contestant(scheme: str) -> Contestant:
    return Contestant(
        f"cluster over {scheme}://",
        "benchmarks.transport.cluster:job",
        "main",
        {"scheme": scheme, "jobs": 2},
        {"jobs": 1},
    )


def _claim(name: str, ours: str, peer: str) -> Claim:
    return Claim(
        *(f"transport.dask_cluster.{name}", _contestant(ours), _contestant(peer), "mean", "ms"),
        rounds_min=ROUNDS,
    )


CLAIMS = [
    _claim("vs_tcp", "forebay", "tcp"),
    _claim("vs_tls", "forebay+tls", "tls"),
]
