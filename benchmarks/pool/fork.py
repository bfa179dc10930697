"""A new service, from the client's request until it is ready, numpy or scikit-learn imported.

Ours forks it from the template when it is asked for: no service is used twice and none is forked
ahead, which every start proves by the moment at which its process was forked.
Peers: a fresh interpreter that imports the same and writes a byte, and multiprocessing's forkserver
with numpy preloaded, until the new process has sent its first byte; once under an ordinary program
and once under one whose main module imports nothing that is not preloaded, where it is at its best.
What it takes to end the process is outside of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import MS, Figures, summary, time_each

if TYPE_CHECKING:
    from benchmarks.services import Fresh

READY_TIMEOUT_S = 30.0
LEARNING = "scipy.optimize, sklearn.ensemble"


def forebay_starts(starts: int, warm_up: int) -> Figures:
    """Acquire a service that is never used again; ready is when the lease is there."""
    from benchmarks.services import Fresh

    return _starts_of(Fresh, starts=starts, warm_up=warm_up)


def forebay_sklearn_starts(starts: int, warm_up: int) -> Figures:
    """The same with scipy and scikit-learn, in the environment that has them."""
    from benchmarks.pool.sklearn_service import FreshLearner

    return _starts_of(FreshLearner, starts=starts, warm_up=warm_up)


def _starts_of(service_class: type[Fresh], *, starts: int, warm_up: int) -> Figures:
    import forebay

    seen: set[int] = set()
    answered: list[int] = []

    pool = forebay.ServicePool(spares=0)

    def start() -> int:
        asked = time.monotonic_ns()
        with pool.acquire(service_class, timeout=READY_TIMEOUT_S) as service:
            ready = time.monotonic_ns()
            pid, forked = service.birth()
            answered.append(time.monotonic_ns() - asked)
            process = os.pidfd_open(pid)
        processes.wait_for_end(process)  # as the peers join theirs
        if pid in seen or forked < asked:
            raise ValueError(f"process {pid} was forked before it was asked for")
        seen.add(pid)
        return ready - asked

    with pool:
        figures = time_each(start, count=starts, warm_up=warm_up)
    with_first_call = summary(answered[warm_up:], unit_ns=MS)["p50"]
    return figures | {"p50_with_first_call": with_first_call}


def interpreter_starts(starts: int, warm_up: int) -> Figures:
    """A fresh interpreter that imports numpy and writes one byte."""
    return _interpreters("numpy", starts=starts, warm_up=warm_up)


def sklearn_interpreter_starts(starts: int, warm_up: int) -> Figures:
    """The same with scipy and scikit-learn."""
    return _interpreters(LEARNING, starts=starts, warm_up=warm_up)


def _interpreters(modules: str, *, starts: int, warm_up: int) -> Figures:
    command = [sys.executable, "-c", f"import {modules}, os; os.write(1, b'.')"]

    def start() -> int:
        asked = time.monotonic_ns()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            first = os.read(process.stdout.fileno(), 1)
            ready = time.monotonic_ns()
        if first != b".":
            raise ValueError(f"the interpreter ended with status {process.returncode}")
        return ready - asked

    return time_each(start, count=starts, warm_up=warm_up)


def _forkserver_starts(starts: int, warm_up: int, *options: str) -> Figures:
    program = Path(__file__).with_name("forkserver_program.py")
    command = [sys.executable, str(program), str(warm_up + starts), *options]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    samples: list[int] = json.loads(printed)
    return summary(samples[warm_up:], unit_ns=MS)


def forkserver_starts(starts: int, warm_up: int) -> Figures:
    """A process of the forkserver, numpy preloaded, until its first byte; an ordinary program."""
    return _forkserver_starts(starts, warm_up)


def bare_forkserver_starts(starts: int, warm_up: int) -> Figures:
    """The same for a program whose main module imports nothing besides: the peer at its best."""
    return _forkserver_starts(starts, warm_up, "--bare")


STARTS = {"starts": 100, "warm_up": 5}
STARTS_QUICK = {"starts": 40}
FEW = {"starts": 10, "warm_up": 1}  # each of the peer's takes seconds
FEW_QUICK = {"starts": 4}


def _starts(name: str, function: str, environment: str) -> Contestant:
    return Contestant(name, f"benchmarks.pool.fork:{function}", environment, STARTS, STARTS_QUICK)


FOREBAY = _starts("forebay, template", "forebay_starts", OWN)
INTERPRETER = _starts("fresh interpreter", "interpreter_starts", "main")
FORKSERVER = _starts("forkserver, preloaded", "forkserver_starts", "main")
BARE_FORKSERVER = _starts("forkserver, bare main", "bare_forkserver_starts", "main")

FOREBAY_SKLEARN = Contestant(
    "forebay, template, scikit-learn",
    "benchmarks.pool.fork:forebay_sklearn_starts",
    "learning",
    STARTS,
    STARTS_QUICK,
)
SKLEARN_INTERPRETER = Contestant(
    "fresh interpreter, scikit-learn",
    "benchmarks.pool.fork:sklearn_interpreter_starts",
    "learning",
    FEW,
    FEW_QUICK,
)

CLAIMS = [
    Claim("pool.fork.numpy.vs_exec", FOREBAY, INTERPRETER, "p50", "ms"),
    Claim("pool.fork.numpy.vs_forkserver", FOREBAY, FORKSERVER, "p50", "ms"),
    Claim("pool.fork.numpy.vs_bare_forkserver", FOREBAY, BARE_FORKSERVER, "p50", "ms"),
    Claim("pool.fork.sklearn.vs_exec", FOREBAY_SKLEARN, SKLEARN_INTERPRETER, "p50", "ms"),
]
