"""The application: gcc's flags are tuned by requests, on compilers that their server keeps warm.

`forebay serve examples/gcc_tuning/app.py`, then `forebay run tune --program lz --budget 80`.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import Literal

import forebay

from .backends import ServiceBackend
from .compiler import Compiler
from .flags import options_of
from .found import Found
from .search import Search

__all__ = ["PROGRAMS", "Program", "app", "borrow", "tune"]

PROGRAMS = Path(__file__).resolve().parent / "programs"
COMPILER = Compiler.spec(source_dir=str(PROGRAMS))
CORES = os.cpu_count() or 1

Program = Literal[
    "big_integer", "hash_table", "json_scan", "lz", "matrix", "sha256", "shortest_paths", "sorting"
]
"""The programs by name, so that a misspelt one is refused before anything is queued."""

app = forebay.App("tuning")
app.service(COMPILER, min_idle=1, max_size=CORES)


# As many at once as there are compilers; the same seed finds the same, so it may run twice.
@app.request(memory="20MB", concurrency=CORES, retries=1)
def tune(ctx: forebay.Context, program: Program, budget: int = 80, seed: int = 1) -> Found:
    """Search the flags that make a program smallest.

    Args:
        ctx: of the run.
        program: which of the example's programs.
        budget: trials; each compiles the program, runs its self-check and measures it.
        seed: of all draws.
    """
    search = Search(options_of(), budget=budget, seed=f"{seed} {program}")
    with closing(ServiceBackend(ctx.acquire, COMPILER)) as backend:
        trials = ctx.progress(range(budget), unit="trials")
        for _ in trials:
            result = backend.compile(program, search.ask())
            search.tell(result)
            trials.message = search.describe()
            if result is None:
                ctx.log.warning("one trial lost, the search goes on: %s", backend.losses[-1])
        found = search.found(program, [str(error) for error in backend.losses])
    print(found.table())
    return found


@app.request(lane="short", memory="20MB")
def borrow(ctx: forebay.Context, rounds: int = 50) -> list[float]:
    """Borrow a compiler and give it back, over and over.

    Args:
        ctx: of the run.
        rounds: how often.

    Returns:
        Seconds of each round.
    """
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        with ctx.acquire(COMPILER):
            times.append(time.perf_counter() - start)
    return times
