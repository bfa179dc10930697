"""What is pulled, and how it is timed and checked: the same for ours and for every peer.

A server holds `TENSORS` tensors of random bytes. Figures are named `size/figure`: "64 KiB/rate" is
tensors per second with `IN_FLIGHT` pulls in flight, always of the same tensors into the same
memory; "64 KiB/p50" the median in microseconds of one pull at a time, each of another tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks import processes
from benchmarks.stopwatch import Figures

TENSORS: Final = 64
IN_FLIGHT: Final = 16
SIZES: Final = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
SEED = 9
WRONG = 0xFF
NS_PER_US = 1e3
SAMPLES_MAX = 200_000

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Puller:
    """How a contestant pulls.

    Attributes:
        out: where tensors go, one row each.
        one: pulls the tensor of this number, and returns once it is there.
        many: pulls the first `IN_FLIGHT` tensors at once, and returns once all are there.
    """

    out: Bytes
    one: Callable[[int], object]
    many: Callable[[], object]


def contents(size: int) -> Bytes:
    """The tensors: one row each, none like another."""
    random = np.random.default_rng(SEED)
    return random.integers(0, 255, (TENSORS, size), np.uint8)  # never 255, which is `WRONG`


def destinations(size: int) -> Bytes:
    """Memory for all tensors, whose pages are there."""
    return np.full((TENSORS, size), WRONG, np.uint8)


def sizes(wanted: Iterable[str]) -> list[str]:
    """The sizes of which figures are wanted, in their order."""
    return list(dict.fromkeys(name.partition("/")[0] for name in wanted))


def check(puller: Puller) -> None:
    """Hold both ways to having pulled what the server has, byte by byte.

    Raises:
        ValueError: other bytes came, so that the figures would mean nothing.
    """
    expected = contents(puller.out.shape[1])
    puller.out[...] = WRONG
    for number in range(TENSORS):
        puller.one(number)
    if not np.array_equal(puller.out, expected):
        raise ValueError("one at a time, other bytes came than the server has")
    puller.out[...] = WRONG
    puller.many()
    if not np.array_equal(puller.out[:IN_FLIGHT], expected[:IN_FLIGHT]):
        raise ValueError(f"{IN_FLIGHT} at once, other bytes came than the server has")


def measure(name: str, puller: Puller, *, seconds: float, warm_up_s: float) -> Figures:
    """Time both ways for `seconds` each, after the check and a warm-up; figures of this size."""
    check(puller)
    figures = _many(puller.many, seconds, warm_up_s) | _one(puller.one, seconds, warm_up_s)
    return {f"{name}/{figure}": value for figure, value in figures.items()}


def _many(many: Callable[[], object], seconds: float, warm_up_s: float) -> Figures:
    clock = time.perf_counter
    until = clock() + warm_up_s
    while clock() < until:
        many()
    watched = processes.tree()
    cpu_before = processes.cpu_ns(watched)
    count, started = 0, clock()
    until = started + seconds
    while clock() < until:
        many()
        count += IN_FLIGHT
    took = clock() - started
    cpu = processes.cpu_ns(watched) - cpu_before
    return {
        "rate": count / took,
        "cpu": cpu / count / NS_PER_US,
        "memory_mb": processes.memory_bytes(watched) / 1e6,
    }


def _one(one: Callable[[int], object], seconds: float, warm_up_s: float) -> Figures:
    clock = time.perf_counter_ns
    until = clock() + int(warm_up_s * 1e9)
    number = 0
    while clock() < until:
        one(number % TENSORS)
        number += 1
    samples: list[int] = []
    until = clock() + int(seconds * 1e9)
    started = clock()
    while started < until and len(samples) < SAMPLES_MAX:
        one(number % TENSORS)
        ended = clock()
        samples.append(ended - started)
        number += 1
        started = clock()
    return {
        "p50": float(np.percentile(samples, 50)) / NS_PER_US,
        "p99": float(np.percentile(samples, 99)) / NS_PER_US,
    }


def addresses(arrays: Any) -> list[int]:
    """Where each row begins."""
    first: int = arrays.ctypes.data
    return [first + number * arrays.shape[1] for number in range(len(arrays))]
