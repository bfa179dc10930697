"""The loads of the executor's benchmarks, the same for ours and for every peer.

Every request carries a number and answers with it. Requests are submitted one by one; where many
are in flight, the oldest one's result is taken before the next is submitted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks import processes
from benchmarks.stopwatch import Figures, summary, time_calls

Handle = TypeVar("Handle")
US = 1_000  # nanoseconds
POLL_S = 0.0005
"""How often a result is asked for, where a peer does not tell: its own way waits far longer."""


@dataclass(frozen=True)
class Queue(Generic[Handle]):
    """A system through its ordinary API.

    Attributes:
        submit: submits the request that answers with the number, and returns its handle.
        take: waits for the result of a handle and returns it.
    """

    submit: Callable[[int], Handle]
    take: Callable[[Handle], int]

    def ask(self, number: int) -> bool:
        """Submit one request and take its result; whether it was right."""
        return self.take(self.submit(number)) == number


def flood(queue: Queue[Handle], *, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Keep `in_flight` requests in flight until so many are answered.

    Returns:
        `no-op/rate` per second, `no-op/p50` and `no-op/p99` from submit to result taken in
        microseconds, `no-op/cpu` in microseconds a request of this process and all below it, and
        `no-op/memory_mb` of them all.

    Raises:
        ValueError: an answer was wrong, so that the figures would mean nothing.
    """
    _pass(queue, warm_up, in_flight)
    cpu_before = processes.tree_cpu_ns()
    started = time.perf_counter_ns()
    samples = _pass(queue, requests, in_flight)
    took = time.perf_counter_ns() - started
    cpu = processes.tree_cpu_ns() - cpu_before
    spread = summary(samples, unit_ns=US)
    return {
        "no-op/rate": requests * 1e9 / took,
        "no-op/p50": spread["p50"],
        "no-op/p99": spread["p99"],
        "no-op/cpu": cpu / requests / US,
        "no-op/memory_mb": processes.memory_bytes(processes.tree()) / 1e6,
    }


def _pass(queue: Queue[Handle], requests: int, in_flight: int) -> list[int]:
    """Nanoseconds from submit to result of each request."""
    clock, submit = time.perf_counter_ns, queue.submit
    waiting: deque[tuple[int, int, Handle]] = deque()
    samples: list[int] = []

    def take_oldest() -> None:
        number, begun, handle = waiting.popleft()
        answer = queue.take(handle)
        samples.append(clock() - begun)
        if answer != number:
            raise ValueError(f"request {number} was answered with {answer!r}")

    for number in range(requests):
        if len(waiting) == in_flight:
            take_oldest()
        waiting.append((number, clock(), submit(number)))
    while waiting:
        take_oldest()
    return samples


def one_at_a_time(queue: Queue[Handle], *, requests: int, warm_up: int) -> Figures:
    """Submit a request once the one before is answered; figures in milliseconds."""
    return time_calls(queue.ask, calls=requests, warm_up=warm_up, unit_ns=1_000_000)
