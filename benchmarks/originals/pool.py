"""CompilerGym's service pool (PR 583): `test_make_env`, in its columns.

An environment of a registered id is made and closed, without a reset: its service is ready once it
is made. Cold is a pool of its own for each, as a program that begins has it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.claim import OWN, Contestant, Option
from benchmarks.harness import Series
from benchmarks.originals.original import PUBLISHED, Original, Table, failures, figure
from benchmarks.stopwatch import MS, Figures

COLUMNS = ("min", "median", "max", "mean", "stddev", "ops")
PUBLISHED_MS = {
    "dummy-cc (a C++ program, no work)": (108.65, 0.3385, 2_848),
    "dummy-py (a Python service)": (661.85, 0.3533, 2_664),
    "llvm (a heavy environment class)": (112.17, 1.2736, 748),
    "loop_tool (a Python service)": (661.95, 0.3553, 2_740),
}
CASES = {
    "c": "a C program behind a socket",
    "numpy": "a Python service (numpy)",
    "sklearn": "a heavy one (scikit-learn)",
    "gcc": "gcc tuning",
}
PROGRAMS = Path(__file__).resolve().parents[2] / "examples/gcc_tuning/programs"


@contextmanager
def _spec(case: str) -> Iterator[Any]:
    import forebay

    if case == "c":
        from benchmarks.pool.cycle import compiled

        with compiled() as program:
            yield forebay.Command([program, "{fd}"])
    elif case == "numpy":
        from benchmarks.services import Echo

        yield Echo
    elif case == "sklearn":
        from benchmarks.pool.sklearn_service import Learned

        yield Learned
    else:
        from examples.gcc_tuning.compiler import Compiler

        yield Compiler.spec(source_dir=str(PROGRAMS), gcc="gcc")


def makes(case: str, count: int, pooled: int) -> Figures:
    """Milliseconds of making and closing, from a warm pool or from a new one each time."""
    import gymnasium

    import forebay
    from benchmarks.originals import pool_env  # noqa: F401 - registers the id

    samples = []
    with _spec(case) as spec, forebay.ServicePool(max_size=1) as warm:
        for number in range(count + 1):
            started = time.perf_counter_ns()
            pool = warm if pooled else forebay.ServicePool(max_size=1)
            env = gymnasium.make("forebay/Borrowing-v0", spec=spec, acquire=pool.acquire)
            env.close()
            if number:  # the first one fills caches, and the pool
                samples.append((time.perf_counter_ns() - started) / MS)
            if not pooled:
                pool.close()
    mean = statistics.fmean(samples)
    values = (
        *(min(samples), statistics.median(samples), max(samples), mean),
        *(statistics.stdev(samples), 1e3 / mean),
    )
    return dict(zip(COLUMNS, values, strict=True))


def _contestant(case: str, *, pooled: bool) -> Contestant:
    full, quick = (2_000, 500) if pooled else (20, 3)
    options: dict[str, Option] = {"case": case, "count": full, "pooled": int(pooled)}
    name = f"{CASES[case]}, {'pooled' if pooled else 'cold'}"
    return Contestant(name, "benchmarks.originals.pool:makes", OWN, options, {"count": quick})


MADE = {
    (case, pooled): _contestant(case, pooled=pooled) for case in CASES for pooled in (False, True)
}


def tables(series: Mapping[str, Series]) -> list[Table]:
    """Before and with the pool, in the columns of pytest-benchmark."""
    lines: list[Sequence[str]] = []
    for case, (before, median, ops) in PUBLISHED_MS.items():
        lines.append((f"{case}, before", PUBLISHED, "-", f"{before}", "-", "-", "-", "-"))
        lines.append((f"{case}, pooled", PUBLISHED, "-", f"{median}", "-", "-", "-", f"{ops:,}"))
    for one in MADE.values():
        shown = [figure(series, one, name, ",.4g") for name in COLUMNS[:-1]]
        lines.append((one.name, "here", *shown, figure(series, one, "ops")))
    return [
        Table(
            "Service pool: `test_make_env`, milliseconds",
            [
                "An environment of a registered id is made, borrows its service, and is closed.",
                "Cold: with a pool of its own, whose template imports first.",
                *failures(series),
            ],
            ("case", "measured", "Min", "Median", "Max", "Mean", "StdDev", "OPS"),
            lines,
        )
    ]


POOL = Original("pool", [(one, ["median"]) for one in MADE.values()], tables)
