"""A worker for an application that imports 100 MB: forked from a template, and spawned.

The same program for both: calls are submitted one by one to an executor whose workers are all held
by the calls before, so that each has to start one. Ready is when the call begins in it. What an
idle worker keeps for itself is read once the calls have ended and all workers are still there.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import tempfile
import time
from concurrent.futures import Executor, ProcessPoolExecutor

from benchmarks import processes
from benchmarks.claim import Claim, Contestant
from benchmarks.stopwatch import MS, Figures, summary

START_S = 60.0
MEMORY = "20MB"


def _starts(executor: Executor, starts: int, warm_up: int) -> Figures:
    from benchmarks.executor.learner import hold

    held: list[socket.socket] = []
    futures, samples, pids = [], [], []
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/driver")
        listener.listen()
        listener.settimeout(START_S)
        for _ in range(warm_up + starts):
            asked = time.monotonic_ns()
            futures.append(executor.submit(hold, f"{folder}/driver"))
            worker, _ = listener.accept()
            began, pid = map(int, worker.recv(64).split())
            held.append(worker)
            samples.append(began - asked)
            pids.append(pid)
        for worker in held:
            worker.close()
        for future in futures:
            future.result(START_S)
    if len(set(pids)) != len(pids):
        raise ValueError("a worker had two calls")
    idle = [processes.private_bytes(pid) / 1e6 for pid in pids[warm_up:]]
    return summary(samples[warm_up:], unit_ns=MS) | {"memory_mb": statistics.median(idle)}


def forebay_starts(starts: int, warm_up: int) -> Figures:
    """Ours; the first call, which is not timed, starts the template."""
    import forebay

    with forebay.Executor(warm_up + starts, memory=MEMORY) as executor:
        return _starts(executor, starts, warm_up)


def spawned_starts(starts: int, warm_up: int) -> Figures:
    """A fresh interpreter that imports the application, as ProcessPoolExecutor spawns it."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(warm_up + starts, mp_context=spawn) as executor:
        return _starts(executor, starts, warm_up)


def _contestant(name: str, function: str, full: int, quick: int) -> Contestant:
    options = {"starts": full, "warm_up": 1}
    return Contestant(
        name, f"benchmarks.executor.spawn:{function}", "learning", options, {"starts": quick}
    )


FOREBAY = _contestant("forebay, forked worker", "forebay_starts", 30, 15)
SPAWNED = _contestant("spawned worker", "spawned_starts", 6, 3)

CLAIMS = [
    Claim("executor.worker.start.vs_spawn", FOREBAY, SPAWNED, "p50", "ms"),
    Claim("executor.worker.memory.vs_spawn", FOREBAY, SPAWNED, "memory_mb", "MB"),
]
