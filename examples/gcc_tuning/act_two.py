"""Act two of the demo: tune the programs by requests of a server, and in two ways without one."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import forebay

from .app import PROGRAMS, Program, borrow
from .backends import Backend, FreshBackend, LocalBackend
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
_FRESH_TRIALS = 10  # of each program in fresh processes: enough for a rate


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
        tuning, local, fresh = _rounds(console, plan, client)
    for program, found in tuning.found.items():
        if found.base_bytes == 0:
            raise RuntimeError(f"{program} does not build at -Os: {found.outcomes}")
    rows = rows_of(tuning, PROGRAMS)
    console.print(table_of(rows))
    console.print(_comparison(tuning, local, fresh, statistics.median(times)))
    picture = plot(tuning.found, plan.output_dir / "bytes_against_trials.png")
    _say(console, f"picture: {picture}")
    flags = save(rows, plan.output_dir / "best_flags.json")
    _say(console, f"all flags: {flags}")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _rounds(console: Console, plan: Plan, client: forebay.Client) -> tuple[Tuning, Tuning, Tuning]:
    """Tune some programs in each way, then the next: a machine's moods hit all of them."""
    killer = Killer(client, after=plan.budget * len(plan.programs) // 2)
    cache = ResultCache()
    tuning, local, fresh = Tuning({}, 0.0), Tuning({}, 0.0), Tuning({}, 0.0)
    few = min(_FRESH_TRIALS, plan.budget)
    size = _ROUND_FACTOR * plan.threads
    for start in range(0, len(plan.programs), size):
        programs = plan.programs[start : start + size]
        console.print("A request for each program, on warm compilers of the server:")
        tuning += _with_server(console, plan, programs, client, killer, tuning.trials)
        console.print("The same search with a thread pool and subprocess, without a server:")
        local += _without_server(console, plan, programs, lambda: LocalBackend(PROGRAMS, cache))
        console.print(f"Its first {few} trials again, each in a fresh process, as isolated:")
        apart = replace(plan, budget=few)
        fresh += _without_server(console, apart, programs, lambda: FreshBackend(PROGRAMS))
    return tuning, local, fresh


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
    console: Console,
    plan: Plan,
    programs: Sequence[Program],
    make_backend: Callable[[], Backend],
) -> Tuning:
    searches: dict[str, Search] = {}
    with display_on(console, plan.budget, lambda: "") as display:

        def tick() -> None:
            for program, search in list(searches.items()):
                display.show(program, len(search.history), search.describe())

        local = tune(
            programs,
            make_backend,
            options=options_of(),
            budget=plan.budget,
            seed=plan.seed,
            threads=plan.threads,
            searches=searches,
            tick=tick,
        )
        tick()
    return local


def _comparison(tuning: Tuning, local: Tuning, fresh: Tuning, warm: float) -> Table:
    lost = sum(found.outcomes.get("lost", 0) for found in tuning.found.values())
    ways = (tuning, local, fresh)
    table = Table(
        title="The same search in three ways, by turns; compiling is nearly all of it",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for name in ("requests on warm services", "thread pool, subprocess", "a fresh process a trial"):
        table.add_column(name, overflow="fold")
    table.add_row("wall time", *(f"{way.seconds:.1f} s, {way.trials} trials" for way in ways))
    table.add_row("trials a second", *(f"{way.trials / way.seconds:.1f}" for way in ways))
    saved = [str(way.saved_bytes) for way in (tuning, local)]
    table.add_row("bytes saved in all", *saved, "not searched to the end")
    overhead = fresh.seconds / fresh.trials - local.seconds / local.trials
    table.add_row(
        "a compiler apart",
        f"borrowed warm in {warm * 1e6:.0f} us",
        "none: it is this process",
        f"{overhead * 1e3:.0f} ms more a trial than the thread pool",
    )
    table.add_row(
        "a crash while measuring",
        f"costs its trial ({lost} lost here, on purpose)",
        "ends the program and all searches",
        "costs its trial",
    )
    hits = [sum(found.cached for found in way.found.values()) for way in (tuning, local)]
    table.add_row(
        "the cache",
        f"one per service, outlives leases: {hits[0]} hits",
        f"one for all threads: {hits[1]} hits",
        "none",
    )
    return table
