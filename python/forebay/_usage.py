"""What this process has used of each system, for the metrics of the server that it works for.

A system names what tells its figures when it is imported: one that was not imported was not used.
Names and labels are those of crates/executor/src/usage/families.rs, which skips others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

__all__ = ["Figure", "Key", "tell_by", "used"]

Key = tuple[str, tuple[str, ...]]
"""A metric and the values of its labels, in the order of the table."""

Figure = tuple[str, tuple[str, ...], float]
"""The same with its value: of a counter since the process began, else as it is now."""

_sources: dict[str, Callable[[], Iterable[Figure]]] = {}


def tell_by(system: str, tell: Callable[[], Iterable[Figure]]) -> None:
    """Ask `tell` for the figures of a system from now on. It returns soon, and any thread calls it.

    Args:
        system: its name; a second call for it replaces the first.
        tell: gives the figures; two of the same key are added.
    """
    _sources[system] = tell


def used() -> Mapping[Key, float]:
    """The figures of every system that was imported."""
    figures: dict[Key, float] = {}
    for tell in list(_sources.values()):
        for name, labels, value in tell():
            figures[name, labels] = figures.get((name, labels), 0) + value
    return figures
