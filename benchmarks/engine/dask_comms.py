"""Work of a Dask cluster that is mostly messages, over our transport and over tcp://.

A LocalCluster of two single-threaded workers, each a process; scheduler and client are in one
process, as Dask has it.

- 10,000 tasks that add two numbers, submitted by `map` and gathered. Dask holds messages back for 1
  to 10 ms to send them in batches, which no setting changes: the job is run as Dask has it and with
  no such interval (see `batched`), and each side's better time counts.
- 16 arrays of 32 MB, scattered and gathered through the scheduler. How much memory the process took
  at most is a figure of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.claim import Claim, Contestant
from benchmarks.stopwatch import MS, Figures, summary
from benchmarks.transport.entry_points import announce

WORKERS = 2
TASKS = 10_000
ARRAYS = 16
ARRAY_BYTES = 32_000_000
ROUNDS = 9
WITHOUT_INTERVAL = "benchmarks.engine.batched"


@contextlib.contextmanager
def cluster(scheme: str, *preloads: str) -> Iterator[Any]:
    """A client of a cluster over a scheme, whose workers import `preloads`."""
    announce()
    import dask
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.ERROR)
    with (
        dask.config.set({"distributed.worker.preload": list(preloads)}),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol=f"{scheme}://",
            dashboard_address=None,
            memory_limit=0,
        ) as running,
        Client(running) as client,
    ):
        workers = client.scheduler_info()["workers"]
        if len(workers) != WORKERS or not all(name.startswith(f"{scheme}:") for name in workers):
            raise ValueError(f"the workers are {list(workers)}")
        yield client


def add(first: int, second: int) -> int:
    """A small task."""
    return first + second


def small_tasks(scheme: str, tasks: int, times: int) -> Figures:
    """Milliseconds of a `map` of small tasks and its gather, with the better of two intervals."""
    with cluster(scheme) as client:
        as_it_is = _timed(lambda: _tasks(client, tasks), times)
    importlib.import_module(WITHOUT_INTERVAL)
    with cluster(scheme, WITHOUT_INTERVAL) as client:
        without = _timed(lambda: _tasks(client, tasks), times)
    better = min(as_it_is, without, key=lambda samples: sorted(samples)[len(samples) // 2])
    intervals = {"default": as_it_is, "none": without}
    told = {f"interval_{name}": min(samples) / MS for name, samples in intervals.items()}
    return summary(better, unit_ns=MS) | told


def _tasks(client: Any, tasks: int) -> None:
    numbers = range(tasks)
    got = client.gather(client.map(add, numbers, numbers, pure=False))
    if sum(got) != tasks * (tasks - 1):
        raise ValueError(f"the tasks sum up to {sum(got)}")


def scatter_gather(scheme: str, times: int) -> Figures:
    """Milliseconds of a scatter and a gather through the scheduler, and its peak of memory."""
    import numpy as np

    arrays = [np.full(ARRAY_BYTES // 8, number) for number in range(ARRAYS)]
    with cluster(scheme) as client:
        Path("/proc/self/clear_refs").write_text("5")
        before = _resident("VmRSS")
        samples = _timed(lambda: _through(client, arrays), times)
        peak = _resident("VmHWM") - before
    return summary(samples, unit_ns=MS) | {"memory_mb": peak / 1e6}


def _through(client: Any, arrays: list[Any]) -> None:
    """Scatter and gather arrays by way of the scheduler, which has no other reason to hold them."""
    futures = client.scatter(arrays, direct=False, hash=False)
    got = client.gather(futures, direct=False)
    if any(array[-1] != number for number, array in enumerate(got)):
        raise ValueError("an array came back as another one")


def _timed(work: Callable[[], None], times: int) -> list[int]:
    """Nanoseconds of each of several runs, after one that does not count."""
    samples = []
    for number in range(times + 1):
        gc.collect()
        started = time.perf_counter_ns()
        work()
        if number:
            samples.append(time.perf_counter_ns() - started)
    return samples


def _resident(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since `clear_refs` was told to forget it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise ValueError(field)


def _small_tasks(scheme: str) -> Contestant:
    return Contestant(
        f"10,000 small tasks over {scheme}://",
        "benchmarks.engine.dask_comms:small_tasks",
        "main",
        {"scheme": scheme, "tasks": TASKS, "times": 3},
        {"times": 1},
    )


def _scatter_gather(scheme: str) -> Contestant:
    return Contestant(
        f"16 arrays of 32 MB through the scheduler over {scheme}://",
        "benchmarks.engine.dask_comms:scatter_gather",
        "main",
        {"scheme": scheme, "times": 3},
        {"times": 1},
    )


CLAIMS = [
    Claim(
        "engine.dask.small_tasks.vs_tcp",
        _small_tasks("forebay"),
        _small_tasks("tcp"),
        "mean",
        "ms",
        rounds_min=ROUNDS,
        note="the better of Dask's batching interval and none, for each side",
    ),
    Claim(
        "engine.dask.scatter_gather.vs_tcp",
        _scatter_gather("forebay"),
        _scatter_gather("tcp"),
        "mean",
        "ms",
        rounds_min=ROUNDS,
        note="memory MB is by how much the process of scheduler and client grew at its peak",
    ),
]
