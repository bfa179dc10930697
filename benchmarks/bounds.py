"""Bounds that were asked of the product, each beside what was measured, on a quiet machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.table import aligned

HEAD = ("what", "asked", "measured", "")


@dataclass(frozen=True, slots=True)
class Bound:
    """A figure and what it may be.

    Attributes:
        what: the thing measured, as a reader would say it.
        measured: the figure; None where this machine cannot measure it.
        asked: what it may be at most, or must be at least.
        unit: of both.
        at_least: whether more is better.
        reason: why it was not measured, and what to type.
    """

    what: str
    measured: float | None
    asked: float
    unit: str
    at_least: bool = False
    reason: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether it does; None where nothing was measured."""
        if self.measured is None:
            return None
        return self.measured >= self.asked if self.at_least else self.measured <= self.asked


def table(bounds: Iterable[Bound]) -> str:
    """One line for each: what was asked, what was measured, whether it holds."""
    return aligned(HEAD, map(_line, bounds))


def broken(bounds: Iterable[Bound]) -> int:
    """The exit status: 1 where a bound does not hold."""
    return int(any(bound.holds is False for bound in bounds))


def _line(bound: Bound) -> tuple[str, ...]:
    asked = f"{'>=' if bound.at_least else '<='} {bound.asked:,.6g} {bound.unit}".rstrip()
    if bound.measured is None:
        return (bound.what, asked, "-", f"not measured: {bound.reason}")
    measured = f"{bound.measured:,.4g} {bound.unit}".rstrip()
    return (bound.what, asked, measured, "holds" if bound.holds else "BROKEN")
