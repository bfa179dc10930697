"""Tuning by requests of a server: submitted together, watched while they run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import forebay

from .app import Program, tune
from .display import Display
from .found import Found
from .tune import TICK_SECONDS, Tuning

__all__ = ["Killer", "Status", "tune_by_requests"]

LOOK_S = 0.5
"""Between two looks at what the server has running."""


class Status:
    """One line on the server, asked for at most every `LOOK_S` seconds."""

    def __init__(self, client: forebay.Client):
        self._client = client
        self._line = ""
        self._next = 0.0

    def __call__(self) -> str:
        """Say what runs, what waits, and how many compilers are warm."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + LOOK_S
            services = self._client.ask("services")["services"]
            leased = sum(service["state"] == "leased" for service in services)
            self._line = f"{len(services)} warm compilers, {leased} at work"
        return self._line


class Killer:
    """Kills a compiler at work, once, when enough trials are made.

    Attributes:
        killed: its process; None until then.
    """

    def __init__(self, client: forebay.Client, after: int):
        self.killed: int | None = None
        self._client = client
        self._after = after

    def look(self, trials: int, say: Callable[[str], None]) -> None:
        """Kill one if it is time to.

        Args:
            trials: made so far.
            say: prints a line.
        """
        if self.killed is not None or trials < self._after:
            return
        services = self._client.ask("services")["services"]
        leased = [service["pid"] for service in services if service["state"] == "leased"]
        if leased:
            self.killed = leased[0]
            say(f"  after {trials} trials: SIGKILL to compiler {self.killed}, on purpose")
            os.kill(self.killed, signal.SIGKILL)


class _Watched:
    """A request, and how far it has come; a thread of its own reads what it tells."""

    def __init__(self, request: forebay.Request):
        self.request = request
        self.trials = 0
        self.told = ""
        self.found: Found | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        try:
            for step in self.request.progress():
                self.trials, self.told = int(step.done), step.message
            self.found = self.request.result()
        except BaseException as error:  # told to whoever waits for the run, which raises it
            self.error = error


def tune_by_requests(
    client: forebay.Client,
    programs: Sequence[Program],
    display: Display,
    *,
    budget: int,
    seed: int,
    tick: Callable[[int], Any],
) -> tuple[Tuning, dict[str, str]]:
    """Submit a request for each program and show them until all have ended.

    Args:
        client: of the server.
        programs: their names.
        display: shows the bars.
        budget: trials for each program.
        seed: of all draws.
        tick: called in this thread about every `TICK_SECONDS` with the trials made so far.

    Returns:
        What they found, and the ids of the requests by program.

    Raises:
        forebay.Error: a request failed.

    Interrupts: it stops watching; the requests go on as long as their server runs.
    """
    start = time.monotonic()
    watched = {
        program: _Watched(client.submit(tune, program=program, budget=budget, seed=seed))
        for program in programs
    }
    for one in watched.values():
        while one.thread.is_alive():
            one.thread.join(TICK_SECONDS)
            _show(watched, display, tick)
    _show(watched, display, tick)
    for one in watched.values():
        if one.error is not None:
            raise one.error
    found = {one.found.program: one.found for one in watched.values() if one.found is not None}
    ids: dict[str, str] = {program: one.request.id for program, one in watched.items()}
    return Tuning(found, time.monotonic() - start), ids


def _show(watched: dict[Program, _Watched], display: Display, tick: Callable[[int], Any]) -> None:
    for program, one in watched.items():
        display.show(program, one.trials, one.told)
    tick(sum(one.trials for one in watched.values()))
