"""Act two of the demo: tune the programs by requests of a server, and the same without one."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import forebay

from .app import PROGRAMS, Program, borrow
from .backends import LocalBackend
from .by_requests import Killer, Status, tune_by_requests
from .display import display_on
from .flags import options_of
from .plot import plot
from .report import rows_of, save, table_of
from .results import ResultCache
from .search import Search
from .server import command, local_server
from .tune import Tuning, tune

__all__ = ["Plan", "run"]

_ROUND_FACTOR = 2  # programs per thread in one round


@dataclass(frozen=True, slots=True)
class Plan:
    """What act two does.

    Attributes:
        programs: which of them.
        budget: trials for each program.
        seed: of the search.
        threads: programs tuned at once; by the server, as many as there are cores.
        output_dir: where the picture and the flags go.
    """

    programs: tuple[Program, ...]
    budget: int
    seed: int
    threads: int
    output_dir: Path


def run(console: Console, plan: Plan) -> None:
    """Play act two; leaves a picture and the flags in `plan.output_dir`.

    Raises:
        RuntimeError: a program does not build at -Os with this gcc.
        forebay.Error: a request failed.
    """
    options = options_of()
    count = f"{len(plan.programs)} programs, {plan.budget} trials each, seed {plan.seed}"
    console.print(
        f"Act two: tuning gcc for size, {len(options)} options, {count}.", highlight=False
    )
    here = f"{Path.cwd()}/"
    with local_server(lambda line: _say(console, f"  {line.replace(here, '')}")) as client:
        times = client.run(borrow)
        tuning, local = _rounds(console, plan, client)
    for program, found in tuning.found.items():
        if found.base_bytes == 0:
            raise RuntimeError(f"{program} does not build at -Os: {found.outcomes}")
    rows = rows_of(tuning, PROGRAMS)
    console.print(table_of(rows))
    console.print(_comparison(tuning, local, statistics.median(times), _fresh_interpreter()))
    picture = plot(tuning.found, plan.output_dir / "bytes_against_trials.png")
    _say(console, f"picture: {picture}")
    flags = save(rows, plan.output_dir / "best_flags.json")
    _say(console, f"all flags: {flags}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _fresh_interpreter() -> float:
    """Seconds until a fresh interpreter could compile: a process of its own without a pool."""
    program = "import examples.gcc_tuning.compiler"
    start = time.perf_counter()
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
    return time.perf_counter() - start


def _rounds(console: Console, plan: Plan, client: forebay.Client) -> tuple[Tuning, Tuning]:
    """Tune some programs by requests and without, then the next: a machine's moods hit both."""
    killer = Killer(client, after=plan.budget * len(plan.programs) // 2)
    cache = ResultCache()
    tuning, local = Tuning({}, 0.0), Tuning({}, 0.0)
    size = _ROUND_FACTOR * plan.threads
    for start in range(0, len(plan.programs), size):
        programs = plan.programs[start : start + size]
        console.print("A request for each program, on warm compilers of the server:")
        tuning += _with_server(console, plan, programs, client, killer, tuning.trials)
        console.print("The same search with a thread pool and subprocess, without a server:")
        local += _without_server(console, plan, programs, cache)
    return tuning, local


def _with_server(
    console: Console,
    plan: Plan,
    programs: Sequence[Program],
    client: forebay.Client,
    killer: Killer,
    before: int,
) -> Tuning:
    with display_on(console, plan.budget, Status(client)) as display:
        tuning, ids = tune_by_requests(
            client,
            programs,
            display,
            budget=plan.budget,
            seed=plan.seed,
            tick=lambda trials: killer.look(before + trials, display.say),
        )
    for program, found in tuning.found.items():
        if found.losses:
            _say(console, f"$ forebay logs {ids[program]}")
            _say(console, command("logs", ids[program]).rstrip())
    return tuning


def _without_server(
    console: Console, plan: Plan, programs: Sequence[Program], cache: ResultCache
) -> Tuning:
    searches: dict[str, Search] = {}
    with display_on(console, plan.budget, lambda: "") as display:

        def tick() -> None:
            for program, search in list(searches.items()):
                display.show(program, len(search.history), search.describe())

        local = tune(
            programs,
            lambda: LocalBackend(PROGRAMS, cache),
            options=options_of(),
            budget=plan.budget,
            seed=plan.seed,
            threads=plan.threads,
            searches=searches,
            tick=tick,
        )
        tick()
    return local


def _comparison(tuning: Tuning, local: Tuning, warm: float, fresh: float) -> Table:
    lost = sum(found.outcomes.get("lost", 0) for found in tuning.found.values())
    table = Table(
        title="The same search twice, by turns; compiling is nearly all of it",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    table.add_column("requests on warm services", overflow="fold")
    table.add_column("thread pool and subprocess", overflow="fold")
    table.add_row("wall time", f"{tuning.seconds:.1f} s", f"{local.seconds:.1f} s")
    rates = [f"{each.trials / each.seconds:.1f}" for each in (tuning, local)]
    table.add_row("trials a second", *rates)
    table.add_row("bytes saved in all", *(str(each.saved_bytes) for each in (tuning, local)))
    table.add_row(
        "a compiler",
        f"borrowed warm in {warm * 1e6:.0f} us",
        f"nothing to make, nothing apart; in a fresh interpreter {fresh * 1e3:.0f} ms",
    )
    table.add_row(
        "a crash while measuring",
        f"costs its trial ({lost} lost here, on purpose)",
        "ends the program and all searches",
    )
    hits = [sum(found.cached for found in each.found.values()) for each in (tuning, local)]
    table.add_row(
        "the cache",
        f"one per service, outlives leases: {hits[0]} hits",
        f"one for all threads: {hits[1]} hits",
    )
    return table
