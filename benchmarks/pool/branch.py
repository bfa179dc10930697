"""Eight live copies of a service with 50 MB of state, against eight that load the state anew.

Ours forks a service that holds the state; the peer is our own pool without that: eight services
forked from the template, all asked for at once, each loading the state from a pickle that lies in
the page cache.
The state is numpy's arrays, which a pickle loads at the speed of memory: the peer at its best.
On both sides the time runs until each of the eight has answered a call that reads the state and
changes its own copy; each answer proves that it saw no other copy's change.
"""

from __future__ import annotations

import contextlib
import pickle
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures, time_each

COPIES = 8
ARRAYS = 50
ARRAY_BYTES = 1_000_000
START_TIMEOUT_S = 60.0


def check(answers: list[tuple[int, int]]) -> None:
    """Every copy has the state and counted its own first call: nobody shares or was used before."""
    if len(answers) != COPIES or set(answers) != {(1, answers[0][1])}:
        raise ValueError(f"the copies answered {answers}: they are not eight of one state")


def forebay_branches(rounds: int, warm_up: int) -> Figures:
    """`lease.fork(8)` of one service, and a call to each."""
    import forebay
    from benchmarks.services import Holder

    if not hasattr(forebay.Lease, "fork"):
        raise NotImplementedError("this version has no lease.fork")
    with forebay.ServicePool(max_size=1 + COPIES) as pool:
        holding = pool.acquire(Holder.spec(ARRAYS, ARRAY_BYTES), timeout=START_TIMEOUT_S)
        with holding as holder:
            lease: Any = holder.lease

            def branch() -> int:
                with contextlib.ExitStack() as stack:
                    started = time.perf_counter_ns()
                    copies = lease.fork(COPIES)
                    if hasattr(copies, "__enter__"):
                        copies = stack.enter_context(copies)
                    answers = [copy.visit() for copy in copies]
                    took = time.perf_counter_ns() - started
                check(answers)
                return took

            return time_each(branch, count=rounds, warm_up=warm_up)


def forebay_rebuilds(rounds: int, warm_up: int) -> Figures:
    """Eight services from the template that load the state, and a call to each."""
    import forebay
    from benchmarks.services import Loader, state

    with (
        tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder,
        forebay.ServicePool(max_size=COPIES) as pool,
        ThreadPoolExecutor(COPIES) as threads,
    ):
        path = Path(folder, "state.pickle")
        path.write_bytes(pickle.dumps(state(ARRAYS, ARRAY_BYTES), protocol=5))
        spec = Loader.spec(str(path))

        def visit(held: forebay.pool.Acquire[Loader]) -> tuple[int, int]:
            return held.__enter__().visit()

        def rebuild() -> int:
            acquired = [pool.acquire(spec, timeout=START_TIMEOUT_S) for _ in range(COPIES)]
            started = time.perf_counter_ns()
            answers = list(threads.map(visit, acquired))
            took = time.perf_counter_ns() - started
            for each in acquired:
                each.__exit__(None, None, None)
            check(answers)
            return took

        return time_each(rebuild, count=rounds, warm_up=warm_up)


def _contestant(name: str, function: str) -> Contestant:
    full = {"rounds": 20, "warm_up": 2}
    return Contestant(name, f"benchmarks.pool.branch:{function}", OWN, full, {"rounds": 6})


BRANCHES = _contestant("forebay, lease.fork(8)", "forebay_branches")
REBUILDS = _contestant("eight services from a pickle", "forebay_rebuilds")

CLAIMS = [Claim("pool.branch8.vs_rebuild", BRANCHES, REBUILDS, "p50", "ms")]
