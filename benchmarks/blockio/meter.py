"""Reads per second and processor time per read, counted alike for ours and for every peer."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

from benchmarks import processes
from benchmarks.stopwatch import Figures

RATE, CPU, P50 = "4 KiB/rate", "4 KiB/cpu", "4 KiB/p50"
MEMORY, KEPT = "4 KiB/memory_mb", "4 KiB/kept"
US_PER_S = 1e6


class Meter:
    """The timed part of a round: from `start` until it is `over`, then `figures`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.until = 0.0

    def start(self) -> None:
        """Begin to count."""
        self._cpu_before = _cpu_s()
        self._started = time.perf_counter()
        self.until = self._started + self._seconds

    def over(self) -> bool:
        """Whether it has taken as long as it should."""
        return time.perf_counter() >= self.until

    def figures(self, reads: int) -> Figures:
        """Reads per second, microseconds of processor per read, and memory in megabytes."""
        took = time.perf_counter() - self._started
        cpu = _cpu_s() - self._cpu_before
        return {
            RATE: reads / took,
            CPU: cpu / reads * US_PER_S,
            MEMORY: processes.memory_bytes([os.getpid()]) / 1e6,
        }


def repeat(step: Callable[[int], int], *, seconds: float, warm_up_s: float) -> Figures:
    """Take steps for so long, after a warm-up.

    Args:
        step: takes the number of the step, returns how many reads it made.
        seconds: how long is timed.
        warm_up_s: how long is not.
    """
    until = time.perf_counter() + warm_up_s
    number = 0
    while time.perf_counter() < until:
        step(number)
        number += 1
    meter = Meter(seconds)
    reads = 0
    meter.start()
    while not meter.over():
        reads += step(number)
        number += 1
    return meter.figures(reads)


def _cpu_s() -> float:
    # The kernel's own I/O threads of this process count, a device's interrupts do not: as in fio.
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
