"""Which fault comes when, drawn from a seed alone: no process, no clock."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from forebay.errors import ConfigError

__all__ = ["FAULTS", "Fault", "Planned", "chosen_faults", "draw"]


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        what: as options name it.
        a_minute: how often it comes, on average.
        lasts: least and most seconds until it is undone.
        how: how it is injected, for help.
        undone: how it ends.
        proof: what must succeed afterwards, for it to be survived: "" any request, "all" one that
            uses every system, "http" one over HTTP.
    """

    what: str
    a_minute: float
    lasts: tuple[float, float]
    how: str
    undone: str
    proof: str = ""


_KILL: Final = "SIGKILL"
_STOP: Final = "SIGSTOP"
_CONTINUE: Final = "SIGCONT"

FAULTS: Final = {
    fault.what: fault
    for fault in (
        Fault("kill-worker", 20.0, (0.0, 0.0), _KILL, "the server starts another"),
        Fault("kill-service", 8.0, (0.0, 0.0), _KILL, "the keeper starts another", "all"),
        Fault("kill-template", 2.0, (0.0, 0.0), _KILL, "the keeper starts another", "all"),
        Fault("kill-keeper", 2.0, (0.0, 0.0), _KILL, "the server starts another", "all"),
        Fault("kill-server", 4.0, (0.0, 0.5), _KILL, "the experiment starts another"),
        Fault("kill-gateway", 4.0, (0.0, 0.0), _KILL, "the server starts another", "http"),
        Fault("stop-worker", 6.0, (0.05, 2.0), _STOP, _CONTINUE),
        Fault("stop-service", 6.0, (0.05, 2.0), _STOP, _CONTINUE, "all"),
        Fault("stop-template", 2.0, (0.05, 2.0), _STOP, _CONTINUE, "all"),
        Fault("stop-keeper", 2.0, (0.05, 2.0), _STOP, _CONTINUE, "all"),
        Fault("stop-server", 3.0, (0.05, 2.0), _STOP, _CONTINUE),
        Fault("stop-gateway", 3.0, (0.05, 2.0), _STOP, _CONTINUE, "http"),
        Fault("full-disk", 2.0, (0.2, 2.0), "a file takes the rest", "the file is removed", "all"),
        Fault("faulty-proxy", 6.0, (0.2, 2.0), "connections are cut, held, slow", "none is", "all"),
        Fault("no-descriptors", 3.0, (0.2, 2.0), "RLIMIT_NOFILE is what is open", "as before"),
        Fault("memory-limit", 2.0, (0.2, 2.0), "a cgroup's limit is what is used", "as before"),
        Fault("clock-jump", 4.0, (0.2, 4.0), "the wall clock is up to 10 days off", "as before"),
    )
}
"""By name, in the order of the table."""


class Planned(NamedTuple):
    """One fault to be.

    Attributes:
        at: seconds since the experiment began.
        what: the fault.
        lasts: seconds until it is undone.
        choice: which of the candidates that are there then, from 0 up to, but not including, 1.
        size: of what it does, from 0 up to, but not including, 1.
    """

    at: float
    what: str
    lasts: float
    choice: float
    size: float


def chosen_faults(names: Iterable[str]) -> list[Fault]:
    """The faults of these names, in the order of the table; of no names all.

    Raises:
        ConfigError: there is no such fault.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in FAULTS]
    if unknown:
        raise ConfigError(f"no fault is called {unknown[0]!r}; there are: {', '.join(FAULTS)}")
    return [fault for fault in FAULTS.values() if not wanted or fault.what in wanted]


def draw(seed: int, seconds: float, faults: Iterable[Fault]) -> list[Planned]:
    """The plan of an experiment, by time; the same one for the same arguments.

    Each fault has a random source of its own, so that one that is left out moves no other.
    The intervals are exponential, and each fault comes at least once.
    """
    plan = [planned for fault in faults for planned in _of(fault, seed, seconds)]
    return sorted(plan)


def _of(fault: Fault, seed: int, seconds: float) -> list[Planned]:
    source = random.Random(f"{seed} {fault.what}")  # of text: the same in every process
    found: list[Planned] = []
    at = source.expovariate(fault.a_minute / 60.0)
    while at < seconds:
        found.append(_drawn(source, fault, at))
        # One after the other: a disk that is full cannot become full.
        at = found[-1].at + found[-1].lasts + source.expovariate(fault.a_minute / 60.0)
    return found or [_drawn(source, fault, source.uniform(0.0, seconds))]


def _drawn(source: random.Random, fault: Fault, at: float) -> Planned:
    return Planned(at, fault.what, source.uniform(*fault.lasts), source.random(), source.random())
