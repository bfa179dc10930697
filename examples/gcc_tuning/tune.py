"""Tune several programs at once: one search per program, one backend per thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from .backends import Backend
from .flags import Option
from .found import Found
from .search import Search

__all__ = ["TICK_SECONDS", "Tuning", "tune"]

TICK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a run found.

    Attributes:
        found: by program, in the order given.
        seconds: wall time of the whole run.
    """

    found: dict[str, Found]
    seconds: float

    def __add__(self, other: Tuning) -> Tuning:
        """Join the results of two runs of different programs."""
        return Tuning({**self.found, **other.found}, self.seconds + other.seconds)

    @property
    def saved_bytes(self) -> int:
        """How much smaller all programs became together."""
        return sum(one.base_bytes - one.best_bytes for one in self.found.values())

    @property
    def trials(self) -> int:
        """How many trials were made in all."""
        return sum(one.trials for one in self.found.values())


class _Crew:
    """The threads of one run: each takes the next program until there is none."""

    def __init__(self, searches: dict[str, Search], make_backend: Callable[[], Backend]):
        self._searches = searches
        self._make_backend = make_backend
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for program in searches:
            self._waiting.put(program)
        self._stop = threading.Event()
        self._errors: list[BaseException] = []

    def run(self, threads: int, tick: Callable[[], None] | None) -> None:
        """Search until every budget is used; call `tick` from this thread meanwhile."""
        crew = [threading.Thread(target=self._work, name=f"tune-{i}") for i in range(threads)]
        try:
            for thread in crew:
                thread.start()
            for thread in crew:
                while thread.is_alive():
                    thread.join(TICK_SECONDS)
                    if tick is not None:
                        tick()
        finally:  # an interrupt ends the run after the trials that run now
            self._stop.set()
            for thread in crew:
                if thread.ident is not None:
                    thread.join()
        if self._errors:
            raise self._errors[0]

    def _work(self) -> None:
        try:
            with closing(self._make_backend()) as backend:
                while not self._stop.is_set():
                    self._search(self._waiting.get_nowait(), backend)
        except queue.Empty:
            return
        except BaseException as error:  # told to the caller of run(), which raises it
            self._errors.append(error)
            self._stop.set()

    def _search(self, program: str, backend: Backend) -> None:
        search = self._searches[program]
        while not search.finished and not self._stop.is_set():
            search.tell(backend.compile(program, search.ask()))


def tune(
    programs: Sequence[str],
    make_backend: Callable[[], Backend],
    *,
    options: Sequence[Option],
    budget: int,
    seed: int,
    threads: int,
    searches: dict[str, Search] | None = None,
    tick: Callable[[], None] | None = None,
) -> Tuning:
    """Search small code for each program.

    Args:
        programs: names of the programs.
        make_backend: called once in each thread.
        options: what may be set.
        budget: trials for each program.
        seed: of all draws; each program draws from its own stream, so that what is found does not
            depend on the number of threads.
        threads: how many programs are tuned at once.
        searches: filled with the search of each program before the first trial, to be watched.
        tick: called in this thread about every `TICK_SECONDS`.

    Raises:
        Exception: the first that a backend raised; the other threads end after their trial.

    Interrupts: a KeyboardInterrupt goes on once each thread has ended its trial.
    """
    searches = {} if searches is None else searches
    for program in programs:
        searches[program] = Search(options, budget=budget, seed=f"{seed} {program}")
    start = time.monotonic()
    _Crew(searches, make_backend).run(min(threads, len(searches)), tick)
    found = {program: search.found(program) for program, search in searches.items()}
    return Tuning(found, time.monotonic() - start)
