"""Acquire and release of a warm, stateless service, against the least that Python needs for it.

The peer is no pool: a lock, a list of services, one poll of pidfd and socket for each that is
taken, and nothing else; no limit, no waiting, no lease that ends, no death that is told.
Alone, a hundred cycles are timed together, since the clock itself would be a tenth of one; beside
seven other threads each cycle is timed, and the 99th percentile is of all of them.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures, summary

THREADS = 8
BATCH = 100
US = 1_000  # nanoseconds
START_TIMEOUT_S = 30.0
Cycle = Callable[[], None]


def time_batches(cycle: Cycle, *, cycles: int, warm_up: int) -> Figures:
    """Figures in microseconds of one cycle, timed a hundred at a time."""
    for _ in itertools.repeat(None, warm_up):
        cycle()
    clock = time.perf_counter_ns
    samples = []
    for _ in range(cycles // BATCH):
        started = clock()
        for _ in itertools.repeat(None, BATCH):
            cycle()
        samples.append((clock() - started) // BATCH)
    return summary(samples, unit_ns=US)


def time_in_threads(cycle: Cycle, *, cycles: int, warm_up: int) -> Figures:
    """Figures in microseconds of single cycles that `THREADS` threads make at the same time."""
    samples: list[list[int]] = [[] for _ in range(THREADS)]
    together = threading.Barrier(THREADS)

    def work(mine: list[int]) -> None:
        clock = time.perf_counter_ns
        together.wait()
        for _ in itertools.repeat(None, warm_up):
            cycle()
        for _ in itertools.repeat(None, cycles):
            started = clock()
            cycle()
            mine.append(clock() - started)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in samples]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(len(mine) != cycles for mine in samples):
        raise ValueError("a thread ended early: the figures would mean nothing")
    return summary(list(itertools.chain(*samples)), unit_ns=US)


# --- ours -------------------------------------------------------------------------------------


def forebay_cycles(cycles: int, warm_up: int) -> Figures:
    """One service, one thread."""
    return forebay(time_batches, services=1, cycles=cycles, warm_up=warm_up)


def forebay_cycles_in_threads(cycles: int, warm_up: int) -> Figures:
    """As many services as threads."""
    return forebay(time_in_threads, services=THREADS, cycles=cycles, warm_up=warm_up)


def forebay(timed: Callable[..., Figures], *, services: int, cycles: int, warm_up: int) -> Figures:
    """Time cycles in a pool of so many services, all of which have answered once."""
    from benchmarks.services import Echo
    from forebay import ServicePool

    with ServicePool(max_size=services) as pool:
        acquired = [pool.acquire(Echo, timeout=START_TIMEOUT_S) for _ in range(services)]
        for each in acquired:
            assert each.__enter__().echo(b"warm") == b"warm"
        for each in acquired:
            each.__exit__(None, None, None)

        def cycle() -> None:
            with pool.acquire(Echo):
                pass

        figures = timed(cycle, cycles=cycles, warm_up=warm_up)
        if pool.stats()["starts"] != services:
            raise ValueError(f"services were started while the time ran: {pool.stats()}")
    return figures


# --- the least --------------------------------------------------------------------------------


class Bare:
    """A process with a socket to it, and a poll that finds either of them ended."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=theirs.fileno())
        self.pidfd = os.pidfd_open(self.process.pid)
        poller = select.poll()
        poller.register(self.pidfd, select.POLLIN)
        poller.register(self.socket, select.POLLIN)
        self.ended = poller.poll
        self.socket.sendall(b"warm")
        assert self.socket.recv(4) == b"warm"

    def close(self) -> None:
        """End the process."""
        os.close(self.pidfd)
        self.process.kill()
        self.process.wait()
        self.socket.close()


def bare_cycles(cycles: int, warm_up: int) -> Figures:
    """One service, one thread."""
    return _bare(time_batches, services=1, cycles=cycles, warm_up=warm_up)


def bare_cycles_in_threads(cycles: int, warm_up: int) -> Figures:
    """As many services as threads."""
    return _bare(time_in_threads, services=THREADS, cycles=cycles, warm_up=warm_up)


def _bare(timed: Callable[..., Figures], *, services: int, cycles: int, warm_up: int) -> Figures:
    idle = [Bare() for _ in range(services)]
    lock = threading.Lock()

    def cycle() -> None:
        with lock:
            service = idle.pop()
        if service.ended(0):
            raise ConnectionResetError
        with lock:
            idle.append(service)

    figures = timed(cycle, cycles=cycles, warm_up=warm_up)
    for service in idle:
        service.close()
    return figures


# --- the claims -------------------------------------------------------------------------------


def _alone(name: str, function: str) -> Contestant:
    full, quick = {"cycles": 400_000, "warm_up": 5_000}, {"cycles": 150_000}
    return Contestant(name, f"benchmarks.pool.acquire:{function}", OWN, full, quick)


def _threads(name: str, function: str) -> Contestant:
    full, quick = {"cycles": 50_000, "warm_up": 500}, {"cycles": 20_000}
    return Contestant(name, f"benchmarks.pool.acquire:{function}", OWN, full, quick)


FOREBAY = _alone("forebay, acquire", "forebay_cycles")
BARE = _alone("bare queue", "bare_cycles")
FOREBAY_THREADS = _threads("forebay, acquire, 8 threads", "forebay_cycles_in_threads")
BARE_THREADS = _threads("bare queue, 8 threads", "bare_cycles_in_threads")

CLAIMS = [
    Claim("pool.acquire.vs_bare_queue", FOREBAY, BARE, "p50", "us"),
    Claim("pool.acquire.p99.vs_bare_queue", FOREBAY_THREADS, BARE_THREADS, "p99", "us"),
]
