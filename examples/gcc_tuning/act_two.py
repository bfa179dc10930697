"""Act two of the demo: tune the programs on warm services, and the same without services."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

import forebay

from .backends import Backend, LocalBackend, ServiceBackend
from .compiler import Compiler
from .display import display_on
from .flags import options_of
from .plot import plot
from .report import rows_of, save, table_of
from .results import ResultCache
from .search import Search
from .tune import Tuning, tune

__all__ = ["Plan", "run"]

WARM_ROUNDS = 50
_ROUND_FACTOR = 2  # programs per thread in one round


@dataclass(frozen=True, slots=True)
class Plan:
    """What act two does.

    Attributes:
        source_dir: folder of the programs.
        programs: which of them.
        budget: trials for each program.
        seed: of the search.
        threads: programs tuned at once, each with a service of its own.
        output_dir: where the picture and the flags go.
    """

    source_dir: Path
    programs: tuple[str, ...]
    budget: int
    seed: int
    threads: int
    output_dir: Path


class _Crowd:
    """The backends of one run, one per thread; kills the service of one of them, once."""

    def __init__(self, pool: forebay.ServicePool, plan: Plan):
        trials = plan.budget * len(plan.programs)
        self._pool = pool
        self._spec = _spec(plan)
        self._half = trials // 2
        self._backends: list[ServiceBackend] = []
        self._lock = threading.Lock()
        self._searches: list[dict[str, Search]] = []
        self.killed: int | None = None
        self.told = False

    def make(self) -> Backend:
        """Make the backend of one thread; called in that thread."""
        backend = ServiceBackend(self._pool.acquire, self._spec)
        with self._lock:
            self._backends.append(backend)
        return backend

    def watch(self, searches: dict[str, Search]) -> None:
        """Count the trials of one more round."""
        self._searches.append(searches)

    def status(self) -> str:
        """Say how many services are warm and how many of them work."""
        with self._lock:
            busy = sum(backend.busy for backend in self._backends)
        return f"services: {self._pool.stats()['live']} warm, {busy} busy"

    def kill_half_way(self, say: Callable[[str], None]) -> None:
        """Kill a busy service once half of the trials are made; tell what became of it."""
        with self._lock:
            done = sum(len(s.history) for searches in self._searches for s in searches.values())
            busy = [pid for b in self._backends if b.busy and (pid := b.pid) is not None]
            losses = [error for backend in self._backends for error in backend.losses]
        if self.killed is None and done >= self._half and busy:
            self.killed = busy[0]
            say(f"  after {done} trials: SIGKILL to service {self.killed}, on purpose")
            os.kill(self.killed, signal.SIGKILL)
        elif self.killed is not None and losses and not self.told:
            self.told = True
            say(f"  one trial lost, the search goes on: {losses[0]}")


def run(console: Console, plan: Plan) -> None:
    """Play act two; leaves a picture and the flags in `plan.output_dir`.

    Raises:
        RuntimeError: a program does not build at -Os with this gcc.
    """
    options = options_of()
    count = f"{len(plan.programs)} programs, {plan.budget} trials each, seed {plan.seed}"
    console.print(
        f"Act two: tuning gcc for size, {len(options)} options, {count}.", highlight=False
    )
    with closing(forebay.ServicePool(max_size=plan.threads)) as pool:
        first, warm = _making(pool, plan)
        tuning, local = _rounds(console, plan, pool)
    for program, search in tuning.searches.items():
        if search.base_bytes == 0:
            raise RuntimeError(f"{program} does not build at -Os: {dict(search.outcomes)}")
    rows = rows_of(tuning, plan.source_dir)
    console.print(table_of(rows))
    console.print(_comparison(tuning, local, (first, warm, _fresh_interpreter())))
    picture = plot(tuning.searches, plan.output_dir / "bytes_against_trials.png")
    console.print(f"picture: {picture}", soft_wrap=True, highlight=False)
    flags = save(rows, plan.output_dir / "best_flags.json")
    console.print(f"all flags: {flags}", soft_wrap=True, highlight=False)


def _spec(plan: Plan) -> forebay.Spec[Compiler]:
    return Compiler.spec(source_dir=str(plan.source_dir))


def _making(pool: forebay.ServicePool, plan: Plan) -> tuple[float, float]:
    """Borrow a compiler and give it back: seconds of the first time, median of the next."""
    times = []
    for _ in range(1 + WARM_ROUNDS):
        start = time.perf_counter()
        with pool.acquire(_spec(plan)):
            times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:])


def _fresh_interpreter() -> float:
    """Seconds until a fresh interpreter could compile: a process of its own without a pool."""
    program = "import examples.gcc_tuning.compiler"
    start = time.perf_counter()
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root)
    return time.perf_counter() - start


def _rounds(console: Console, plan: Plan, pool: forebay.ServicePool) -> tuple[Tuning, Tuning]:
    """Tune some programs with services and without, then the next: a machine's moods hit both."""
    crowd = _Crowd(pool, plan)
    cache = ResultCache()
    tuning, local = Tuning({}, 0.0), Tuning({}, 0.0)
    size = _ROUND_FACTOR * plan.threads
    for start in range(0, len(plan.programs), size):
        programs = plan.programs[start : start + size]
        console.print("On warm services:")
        tuning += _with_services(console, plan, programs, crowd)
        console.print("The same search with a thread pool and subprocess, without services:")
        local += _without_services(console, plan, programs, cache)
    return tuning, local


def _with_services(console: Console, plan: Plan, programs: Sequence[str], crowd: _Crowd) -> Tuning:
    searches: dict[str, Search] = {}
    crowd.watch(searches)
    with display_on(console, searches, plan.budget, crowd.status) as display:

        def tick() -> None:
            crowd.kill_half_way(display.say)
            display.tick()

        return _tune(plan, programs, crowd.make, searches, tick)


def _without_services(
    console: Console, plan: Plan, programs: Sequence[str], cache: ResultCache
) -> Tuning:
    searches: dict[str, Search] = {}
    with display_on(console, searches, plan.budget, lambda: "no services") as display:
        return _tune(
            plan, programs, lambda: LocalBackend(plan.source_dir, cache), searches, display.tick
        )


def _tune(
    plan: Plan,
    programs: Sequence[str],
    make_backend: Callable[[], Backend],
    searches: dict[str, Search],
    tick: Callable[[], None],
) -> Tuning:
    return tune(
        programs,
        make_backend,
        options=options_of(),
        budget=plan.budget,
        seed=plan.seed,
        threads=plan.threads,
        searches=searches,
        tick=tick,
    )


def _comparison(tuning: Tuning, local: Tuning, making: tuple[float, float, float]) -> Table:
    first, warm, fresh = making
    lost = sum(search.outcomes["lost"] for search in tuning.searches.values())
    table = Table(
        title="The same search twice, by turns; compiling is nearly all of it",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    table.add_column("warm services", overflow="fold")
    table.add_column("thread pool and subprocess", overflow="fold")
    table.add_row("wall time", f"{tuning.seconds:.1f} s", f"{local.seconds:.1f} s")
    rates = [f"{each.trials / each.seconds:.1f}" for each in (tuning, local)]
    table.add_row("trials a second", *rates)
    table.add_row("bytes saved in all", *(str(_saved(each)) for each in (tuning, local)))
    table.add_row(
        "making an environment",
        f"{warm * 1e6:.0f} us warm, {first * 1e3:.0f} ms the first time",
        f"nothing to make, nothing apart; in a fresh interpreter {fresh * 1e3:.0f} ms",
    )
    table.add_row(
        "a crash while measuring",
        f"costs its trial ({lost} lost here, on purpose)",
        "ends the program and all searches",
    )
    hits = [sum(s.cached for s in each.searches.values()) for each in (tuning, local)]
    table.add_row(
        "the cache",
        f"one per service, outlives leases: {hits[0]} hits",
        f"one for all threads: {hits[1]} hits",
    )
    return table


def _saved(tuning: Tuning) -> int:
    return sum(search.base_bytes - search.best_bytes for search in tuning.searches.values())
