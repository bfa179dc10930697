"""The claims of the product as a whole, with every neighbour that installs in one table."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import table
from benchmarks.claim import Claim
from benchmarks.harness import Series
from benchmarks.product.grid import COLUMNS, SYSTEMS, Column

CLAIMS: list[Claim] = [column.row() for column in COLUMNS]


def tables(series: Mapping[str, Series]) -> str:
    """A line for each system, medians over the rounds; then why a figure is missing."""
    columns = [
        each for each in COLUMNS if any(one.name in series for one in each.contestants.values())
    ]
    head = ("system", *(column.head for column in columns), "processes at rest")
    lines = [
        (system, *(_cell(column, system, series) for column in columns), _processes(system, series))
        for system in SYSTEMS
    ]
    missing = [
        f"{one.contestant.name} does not run: {one.failure}\n"
        for one in series.values()
        if one.failure
    ]
    return f"{table.aligned(head, lines)}\n{''.join(missing)}"


def _cell(column: Column, system: str, series: Mapping[str, Series]) -> str:
    contestant = column.contestants.get(system)
    one = None if contestant is None else series.get(contestant.name)
    if one is None or not one.values(column.figure):
        return "-"
    return f"{one.median(column.figure):.4g}"


def _processes(system: str, series: Mapping[str, Series]) -> str:
    found = [
        one
        for column in COLUMNS
        if column.figure == "memory_mb" and system in column.contestants
        if (one := series.get(column.contestants[system].name)) and one.values("processes")
    ]
    return f"{found[0].median('processes'):.0f}" if found else "-"
