"""A table that an original published, in its own columns, with ours beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from benchmarks import harness
from benchmarks.claim import Claim, Contestant
from benchmarks.harness import Series

Line = Sequence[str]
Asked = tuple[Contestant, Sequence[str]]
PUBLISHED = "published"
"""Marks what was measured elsewhere, on a machine that nobody knows: never a ratio with ours."""


@dataclass(frozen=True)
class Table:
    """Lines of text under a head.

    Attributes:
        title: what the original is, and which of its tables.
        notes: sentences that a reader needs, each a line.
        columns: the head.
        lines: a cell for each column; the last column may say who measured.
    """

    title: str
    notes: Sequence[str]
    columns: Line
    lines: Sequence[Line]


@dataclass(frozen=True)
class Original:
    """What is measured for the tables of one original.

    Attributes:
        name: as `--only` names it.
        contestants: who runs in each round, with the figure that is asked for first.
        tables: makes the tables from the rounds.
        rounds_min: how many rounds it needs.
        once: scenes that take minutes, which run once and not in each round.
        around: what has to be there for the length of a run.
    """

    name: str
    contestants: Sequence[Asked]
    tables: Callable[[Mapping[str, Series]], Sequence[Table]]
    rounds_min: int = 0
    once: Sequence[Contestant] = ()
    around: Callable[[], AbstractContextManager[object]] = nullcontext

    def measure(self, *, rounds: int, quick: bool) -> dict[str, Series]:
        """Run what runs once, then the rounds."""
        with self.around():
            found = harness.measure(
                self._claims([(one, [""]) for one in self.once]), rounds=1, quick=quick
            )
            claims = self._claims(self.contestants)
            return found | harness.measure(claims, rounds=max(rounds, self.rounds_min), quick=quick)

    def _claims(self, contestants: Sequence[Asked]) -> list[Claim]:
        # Each compared with itself, so that nobody is left out for being slow.
        return [
            Claim(f"originals.{self.name}", one, one, figure, "")
            for one, figures in contestants
            for figure in figures
        ]


def figure(series: Mapping[str, Series], one: Contestant, name: str, shown: str = ",.0f") -> str:
    """The median of a figure as a cell; why there is none."""
    found = series[one.name]
    if found.failure or not found.values(name):
        return "-"
    return format(found.median(name), shown)


def failures(series: Mapping[str, Series]) -> list[str]:
    """A sentence for each who could not run."""
    return [f"{name} did not run: {one.failure}." for name, one in series.items() if one.failure]


def trimmed_mean(values: Sequence[float]) -> float:
    """The mean without the largest and the smallest, where there are three or more."""
    kept = sorted(values)[1:-1] if len(values) > 2 else values
    return statistics.fmean(kept)
