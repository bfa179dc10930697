"""The table that a run prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.harness import Row, Series

CLAIM_HEAD = ("claim", "ours", "peer", "unit", "ratio", "spread over the rounds")
SERIES_HEAD = ("contestant", "mean", "p50", "p99", "p99.9", "CPU", "memory MB")
RATES_HEAD = (
    *("contestant", "message", "per second", "p50 us", "p99 us", "CPU us", "memory MB"),
    *("hog kept", "rounds"),
)

FURTHER = ("fsync_p50", "no-op/queued_bytes", "interpreters", "interval_default", "interval_none")


def aligned(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    """Columns of text, the first flush left and the others flush right but for the last."""
    table = [head, *lines]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    last = len(head) - 1

    def cell(line: tuple[str, ...], column: int) -> str:
        width = widths[column]
        return line[column].ljust(width) if column in (0, last) else line[column].rjust(width)

    return "\n".join(
        "  ".join(cell(line, column) for column in range(len(head))).rstrip() for line in table
    )


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"Linux {machine['kernel']}, {machine['cores']} cores, {machine['processor']}; "
        f"load {machine['load_before']:.2f} before, {machine['load_after']:.2f} after"
    )


def claims_table(rows: list[Row]) -> str:
    """One line per claim, then their notes; a ratio above 1 means that ours is better."""
    notes = [f"{row['claim']}: {row['note']}" for row in rows if row.get("note")]
    return "\n".join([aligned(CLAIM_HEAD, (_claim_line(row) for row in rows)), *notes])


def _claim_line(row: Row) -> tuple[str, ...]:
    if row["ratio"] is None:
        return (row["claim"], "-", "-", row["unit"], "-", f"skipped: {row['skipped']}")
    low, high = row["spread"]
    return (
        row["claim"],
        f"{row['ours']:.4g}",
        f"{row['peer']:.4g}",
        row["unit"],
        f"{row['ratio']:.2f}",
        f"{low:.2f} to {high:.2f} ({row['rounds']} rounds)",
    )


def series_table(series: Iterable[Series]) -> str:
    """One line per contestant and message, medians over its rounds, in the unit of its claims.

    Contestants whose figures are named `message/figure` come in a table of their own.
    """
    ran = [one for one in series if one.figures]
    rates = [one for one in ran if all("/" in name for name in one.names())]
    plain = [one for one in ran if one not in rates]
    tables = []
    if plain:
        tables.append(aligned(SERIES_HEAD, (_series_line(one) for one in plain)))
    if rates:
        tables.append(aligned(RATES_HEAD, (line for one in rates for line in _rate_lines(one))))
    return "\n\n".join(tables)


def further_figures(series: Iterable[Series]) -> str:
    """Figures of single contestants that no column of the tables has, each on a line of its own."""
    return "".join(
        f"\n{one.contestant.name}: {name} {one.median(name):.4g}"
        for one in series
        for name in one.names()
        if name in FURTHER
    )


def _series_line(one: Series) -> tuple[str, ...]:
    names = ("mean", "p50", "p99", "p99_9", "cpu", "memory_mb")
    return (one.contestant.name, *(_shown(one, name) for name in names))


def _rate_lines(one: Series) -> Iterable[tuple[str, ...]]:
    names = ("rate", "p50", "p99", "cpu", "memory_mb", "kept")
    for message in dict.fromkeys(name.partition("/")[0] for name in one.names()):
        shown = (_shown(one, f"{message}/{name}") for name in names)
        rounds = len(one.values(f"{message}/rate"))
        yield (one.contestant.name, message, *shown, str(rounds))


def _shown(one: Series, name: str) -> str:
    return f"{one.median(name):.4g}" if one.values(name) else "-"


def environment_lines(series: Iterable[Series]) -> str:
    """The packages of each environment that took part, one line each."""
    told: dict[str, dict[str, str]] = {}
    for one in series:
        told.setdefault(one.contestant.environment, {}).update(one.versions)
    return "\n".join(
        f"environment {name or 'of the harness'}: "
        + ", ".join(f"{package} {version}" for package, version in versions.items())
        for name, versions in told.items()
        if versions
    )
