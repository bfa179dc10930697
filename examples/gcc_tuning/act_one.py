"""Act one of the demo: cold and warm, killed in mid-call, hung and replaced.

Every figure is measured while one watches.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing

import forebay
from forebay.errors import DeadlineError, DiedError

from .numbers_service import Numbers

__all__ = ["run"]

COUNT = 1_000
COLD_ROUNDS = 3
WARM_ROUNDS = 200
HANG_TIMEOUT = 1.0

Say = Callable[[str], None]


def run(say: Say) -> None:
    """Play act one.

    Args:
        say: prints one line.
    """
    say("Act one: a service that imports numpy.")
    cold = _cold(say)
    with closing(forebay.ServicePool(max_size=2)) as pool:
        warm = _warm(pool, say)
        say(f"  cold against warm                    {cold / warm:>10,.0f} times\n")
        _killed(pool, say)
        _hung(pool, say)


def _cold(say: Say) -> float:
    """Start an interpreter that imports numpy and answers one call; median seconds."""
    program = f"import numpy as np; print(int(np.arange({COUNT}).sum()))"
    times = []
    for _ in range(COLD_ROUNDS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    cold = statistics.median(times)
    say(f"  cold: interpreter, import, one call  {cold * 1e3:>10.1f} ms   (median of {len(times)})")
    return cold


def _warm(pool: forebay.ServicePool, say: Say) -> float:
    """Borrow, call once, give back, over and over; median seconds of one round."""
    start = time.perf_counter()
    with pool.acquire(Numbers) as first:
        expected = first.total(COUNT)
        _line(say, "first service: also the template", start)
        start = time.perf_counter()
        with pool.acquire(Numbers) as second:
            assert second.total(COUNT) == expected
        _line(say, "second service: forked, one call", start)
    times = []
    for _ in range(WARM_ROUNDS):
        start = time.perf_counter()
        with pool.acquire(Numbers) as numbers:
            numbers.total(COUNT)
        times.append(time.perf_counter() - start)
    warm = statistics.median(times)
    say(f"  warm: borrow, one call, give back    {warm * 1e3:>10.3f} ms   (median of {len(times)})")
    return warm


def _killed(pool: forebay.ServicePool, say: Say) -> None:
    """Kill a service in the middle of a call and see what its caller is told."""
    with pool.acquire(Numbers) as numbers:
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.perf_counter())
            os.kill(numbers.lease.pid, signal.SIGKILL)

        killer = threading.Timer(0.3, kill)
        killer.start()
        try:
            numbers.wait(30.0)
        except DiedError as error:
            told = time.perf_counter() - killed[0]
            name = signal.Signals(error.signal).name if error.signal else error.cause
            say(f"  killed in mid-call, caller told      {told * 1e3:>10.1f} ms   ({name})")
            say(f"    {error}")
        finally:
            killer.cancel()
            killer.join()
    _next(pool, say)


def _hung(pool: forebay.ServicePool, say: Say) -> None:
    """Stop a service and see its call end at the deadline, and another service answer."""
    with pool.acquire(Numbers) as numbers:
        stopped = numbers.lease.pid
        os.kill(stopped, signal.SIGSTOP)
        start = time.perf_counter()
        try:
            numbers.lease.options(timeout=HANG_TIMEOUT).total(COUNT)
        except DeadlineError as error:
            _line(say, f"hung, given up at {HANG_TIMEOUT:g} s", start)
            say(f"    {error}")
    _next(pool, say, not_pid=stopped)


def _next(pool: forebay.ServicePool, say: Say, not_pid: int = 0) -> None:
    start = time.perf_counter()
    with pool.acquire(Numbers) as numbers:
        numbers.total(COUNT)
        assert numbers.lease.pid != not_pid, "a service that hung was lent again"
        _line(say, "the next service answered", start)


def _line(say: Say, what: str, start: float) -> None:
    say(f"  {what:<36} {(time.perf_counter() - start) * 1e3:>10.1f} ms")
