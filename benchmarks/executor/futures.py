"""Executor.map of no-op calls, one call a message: ours against the standard library's."""

from __future__ import annotations

import time
from concurrent.futures import Executor, ProcessPoolExecutor

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.executor.load import US
from benchmarks.executor.noop import noop
from benchmarks.stopwatch import Figures


def _map(executor: Executor, calls: int, warm_up: int) -> Figures:
    sum(executor.map(noop, range(warm_up)))
    cpu_before = processes.tree_cpu_ns()
    started = time.perf_counter_ns()
    total = sum(executor.map(noop, range(calls), chunksize=1))
    took = time.perf_counter_ns() - started
    cpu = processes.tree_cpu_ns() - cpu_before
    if total != calls * (calls - 1) // 2:
        raise ValueError(f"the sum of the answers is {total}")
    return {
        "map/rate": calls * 1e9 / took,
        "map/cpu": cpu / calls / US,
        "map/memory_mb": processes.memory_bytes(processes.tree()) / 1e6,
    }


def forebay_map(workers: int, calls: int, warm_up: int) -> Figures:
    """Ours, with workers forked from a template."""
    import forebay

    with forebay.Executor(workers) as executor:
        return _map(executor, calls, warm_up)


def process_pool_map(workers: int, calls: int, warm_up: int) -> Figures:
    """ProcessPoolExecutor as it comes."""
    with ProcessPoolExecutor(workers) as executor:
        return _map(executor, calls, warm_up)


OPTIONS = {"workers": 2, "calls": 10_000, "warm_up": 500}

FOREBAY = Contestant(
    "forebay.Executor.map", "benchmarks.executor.futures:forebay_map", OWN, OPTIONS
)
PROCESS_POOL = Contestant(
    "ProcessPoolExecutor.map", "benchmarks.executor.futures:process_pool_map", "queues", OPTIONS
)

CLAIMS = [
    Claim(
        "executor.futures.vs_process_pool",
        FOREBAY,
        PROCESS_POOL,
        "map/rate",
        "1/s",
        higher_is_better=True,
    )
]
