"""A new service, from the client's request until it is ready, numpy imported.

Ours forks it from the template when it is asked for: no service is used twice and none is forked
ahead, which every start proves by the moment at which its process was forked.
Peers: a fresh interpreter that imports numpy and writes a byte, and multiprocessing's forkserver
with numpy preloaded, until the new process has sent its first byte.
What it takes to end the process is outside of the time.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures, summary

READY_TIMEOUT_S = 30.0
MS = 1_000_000  # nanoseconds
Start = Callable[[], int]


def time_starts(start: Start, *, starts: int, warm_up: int) -> Figures:
    """Figures in milliseconds of `start`, which times itself and cleans up after itself."""
    for _ in range(warm_up):
        start()
    return summary([start() for _ in range(starts)], unit_ns=MS)


def forebay_starts(starts: int, warm_up: int) -> Figures:
    """Acquire a service that is never used again; ready is when the lease is there."""
    import forebay
    from benchmarks.services import Fresh

    seen: set[int] = set()
    answered: list[int] = []

    def start() -> int:
        asked = time.monotonic_ns()
        with forebay.acquire(Fresh, timeout=READY_TIMEOUT_S) as service:
            ready = time.monotonic_ns()
            pid, forked = service.birth()
            answered.append(time.monotonic_ns() - asked)
        if pid in seen or forked < asked:
            raise ValueError(f"process {pid} was forked before it was asked for")
        seen.add(pid)
        return ready - asked

    figures = time_starts(start, starts=starts, warm_up=warm_up)
    with_first_call = summary(answered[warm_up:], unit_ns=MS)["p50"]
    return figures | {"p50_with_first_call": with_first_call}


def interpreter_starts(starts: int, warm_up: int) -> Figures:
    """A fresh interpreter that imports numpy and writes one byte."""
    command = [sys.executable, "-c", "import numpy, os; os.write(1, b'.')"]

    def start() -> int:
        asked = time.monotonic_ns()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            first = os.read(process.stdout.fileno(), 1)
            ready = time.monotonic_ns()
        if first != b".":
            raise ValueError(f"the interpreter ended with status {process.returncode}")
        return ready - asked

    return time_starts(start, starts=starts, warm_up=warm_up)


def _first_byte(pipe: Connection) -> None:
    # Bound at once, since the server preloaded it: the service needs it, so it imports it.
    import numpy

    pipe.send_bytes(numpy.__name__.encode())


def forkserver_starts(starts: int, warm_up: int) -> Figures:
    """A process of the forkserver, numpy preloaded there, until its first byte."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "benchmarks.pool", "__main__"])

    def start() -> int:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_first_byte, args=(theirs,))
        asked = time.monotonic_ns()
        process.start()
        ours.recv_bytes()
        ready = time.monotonic_ns()
        process.join()
        process.close()
        ours.close()
        theirs.close()
        return ready - asked

    return time_starts(start, starts=starts, warm_up=warm_up)


STARTS = {"starts": 100, "warm_up": 5}
STARTS_QUICK = {"starts": 40}


def _starts(name: str, function: str, environment: str) -> Contestant:
    return Contestant(name, f"benchmarks.pool:{function}", environment, STARTS, STARTS_QUICK)


FOREBAY = _starts("forebay, template", "forebay_starts", OWN)
INTERPRETER = _starts("fresh interpreter", "interpreter_starts", "main")
FORKSERVER = _starts("forkserver, preloaded", "forkserver_starts", "main")

CLAIMS = [
    Claim("pool.fork.numpy.vs_exec", FOREBAY, INTERPRETER, "mean", "ms"),
    Claim("pool.fork.numpy.vs_forkserver", FOREBAY, FORKSERVER, "mean", "ms"),
]
