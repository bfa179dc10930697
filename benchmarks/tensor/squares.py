"""The 2 x 2 of the experiment as tables: what slots, registration and both do to one workload."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.harness import Series
from benchmarks.table import aligned
from benchmarks.tensor.experiment import MODES, NEITHER
from benchmarks.tensor.load import sizes

HEAD = ("workload", NEITHER.name, *(mode.name for mode in MODES.values()))


def squares(series: Mapping[str, Series]) -> str:
    """One line per workload, each figure with how many times the first one it is."""
    first = series.get(NEITHER.name)
    if first is None or not first.figures:
        return ""
    shapes = [name for name in sizes(first.names()) if first.values(f"{name}/rate")]
    lines = [(shape, *_cells(shape, first, series)) for shape in shapes]
    return f"{aligned(HEAD, lines)}\n"


def _cells(shape: str, first: Series, series: Mapping[str, Series]) -> list[str]:
    figure = f"{shape}/rate"
    base = first.median(figure)
    cells = [f"{base:.4g}"]
    for mode in MODES.values():
        one = series.get(mode.name)
        if one is None or not one.values(figure):
            cells.append("-")
        else:
            value = one.median(figure)
            cells.append(f"{value:.4g} ({value / base:.2f}x)")
    return cells
