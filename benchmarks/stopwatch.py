"""Timing of repeated operations, the same for ours and for every peer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks import processes

Figures = dict[str, float]
MS = 1_000_000  # nanoseconds


def summary(samples_ns: list[int], *, unit_ns: int) -> Figures:
    """Mean and percentiles of durations, in units of `unit_ns` nanoseconds."""
    ordered = sorted(samples_ns)

    def percentile(fraction: float) -> float:
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] / unit_ns

    return {
        "mean": statistics.fmean(ordered) / unit_ns,
        "p50": percentile(0.5),
        "p99": percentile(0.99),
        "p99_9": percentile(0.999),
        "count": len(ordered),
    }


def time_calls(
    call: Callable[[int], bool], *, calls: int, warm_up: int, unit_ns: int = 1_000
) -> Figures:
    """Call one after the other; what is returned is in microseconds unless `unit_ns` says else.

    Args:
        call: takes the number of the call, says whether the answer was right.
        calls: how many are timed.
        warm_up: how many are made before.
        unit_ns: nanoseconds per unit of the figures.

    Raises:
        ValueError: an answer was wrong, so that the figures would mean nothing.
    """
    for number in range(warm_up):
        _check(call(number), number)
    clock = time.perf_counter_ns
    samples: list[int] = []
    watched = processes.tree()
    cpu_before = processes.cpu_ns(watched)
    for number in range(warm_up, warm_up + calls):
        started = clock()
        right = call(number)
        samples.append(clock() - started)
        _check(right, number)
    cpu = processes.cpu_ns(watched) - cpu_before
    memory = processes.memory_bytes(watched)
    figures = summary(samples, unit_ns=unit_ns)
    return figures | {"cpu": cpu / calls / unit_ns, "memory_mb": memory / 1e6}


def time_each(operation: Callable[[], int], *, count: int, warm_up: int) -> Figures:
    """Figures in milliseconds of an operation that times itself, and cleans up untimed.

    Args:
        operation: returns the nanoseconds that it took.
        count: how many are timed.
        warm_up: how many are made before.
    """
    for _ in range(warm_up):
        operation()
    return summary([operation() for _ in range(count)], unit_ns=MS)


def _check(right: bool, number: int) -> None:
    if not right:
        raise ValueError(f"call {number} was answered wrongly: the figures would mean nothing")
