"""Timing of repeated operations, the same for ours and for every peer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

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
    call: Callable[[int], bool],
    *,
    calls: int,
    warm_up: int,
    unit_ns: int = 1_000,
    per_second: int = 0,
) -> Figures:
    """Call one after the other; what is returned is in microseconds unless `unit_ns` says else.

    Args:
        call: takes the number of the call, says whether the answer was right.
        calls: how many are timed.
        warm_up: how many are made before.
        unit_ns: nanoseconds per unit of the figures.
        per_second: how many begin in a second, with a sleep in between; 0: one after the other.

    Raises:
        ValueError: an answer was wrong, so that the figures would mean nothing.
    """
    timing = _Timing(calls, unit_ns)
    for number in range(warm_up):
        _check(call(number), number)
    clock, samples = time.perf_counter_ns, timing.start()
    period = 1_000_000_000 // per_second if per_second else 0
    due = clock()
    for number in range(warm_up, warm_up + calls):
        if period:
            due += period
            time.sleep(max(0, due - clock()) / 1e9)
        started = clock()
        right = call(number)
        samples.append(clock() - started)
        _check(right, number)
    return timing.stop()


async def time_awaited_calls(
    call: Callable[[int], Awaitable[bool]], *, calls: int, warm_up: int, unit_ns: int = 1_000
) -> Figures:
    """The same for a coroutine function, in the loop that runs."""
    timing = _Timing(calls, unit_ns)
    for number in range(warm_up):
        _check(await call(number), number)
    clock, samples = time.perf_counter_ns, timing.start()
    for number in range(warm_up, warm_up + calls):
        started = clock()
        right = await call(number)
        samples.append(clock() - started)
        _check(right, number)
    return timing.stop()


class _Timing:
    """Durations, and what the process and everything below it use meanwhile."""

    def __init__(self, calls: int, unit_ns: int) -> None:
        self._calls = calls
        self._unit_ns = unit_ns
        self._samples: list[int] = []

    def start(self) -> list[int]:
        self._watched = processes.tree()
        self._cpu_before = processes.cpu_ns(self._watched)
        return self._samples

    def stop(self) -> Figures:
        cpu = processes.cpu_ns(self._watched) - self._cpu_before
        memory = processes.memory_bytes(self._watched)
        figures = summary(self._samples, unit_ns=self._unit_ns)
        return figures | {"cpu": cpu / self._calls / self._unit_ns, "memory_mb": memory / 1e6}


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
