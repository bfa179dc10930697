"""The experiment with `--gil-hold-time` as a table: `python -m benchmarks.transport.gil_table`.

A thread of the server counts in Python and never gives up the GIL by itself, while one client, or
six in three processes, have echoes of 1 kB answered, plain and over TLS.
A cell has the requests per second, and the share of its free speed that the counting thread kept.
Every cell is measured once in each round; the table shows medians.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from benchmarks import harness, machine, table
from benchmarks.claim import Claim, Contestant
from benchmarks.runner import adopt_orphans
from benchmarks.transport.contestants import DASK, DASK_TLS, FOREBAY, FOREBAY_TLS, System
from benchmarks.transport.gil import (
    FOREBAY_TLS_UVLOOP,
    FOREBAY_UVLOOP,
    MESSAGE,
    NATIVE,
    ONE,
    SIX,
    SPIN_US,
    SPINNING,
    SPINNING_TLS,
)

ROUNDS = 3
RATE, KEPT = f"{MESSAGE}/rate", f"{MESSAGE}/kept"


def _dask(label: str, tls_label: str) -> tuple[System, System]:
    (plain,) = (system for system in DASK if system.label == label)
    (encrypted,) = (system for system in DASK_TLS if system.label == tls_label)
    return plain, encrypted


ROWS: Mapping[str, tuple[System, System | None]] = {
    "forebay, its loop": (FOREBAY, FOREBAY_TLS),
    f"forebay, its loop, spin_us={SPIN_US}": (SPINNING, SPINNING_TLS),
    "forebay on uvloop": (FOREBAY_UVLOOP, FOREBAY_TLS_UVLOOP),
    "forebay, native handler": (NATIVE, None),
    "dask, tornado": _dask("dask tornado", "dask tornado tls"),
    "dask, asyncio": _dask("dask 2023 asyncio", "dask 2023 asyncio tls"),
    "dask, asyncio on uvloop": _dask("dask 2023 asyncio uvloop", "dask 2023 asyncio tls uvloop"),
}
"""What a line is called, and how it is run plain and over TLS."""

COLUMNS = {"1 client": (0, ONE), "6 clients": (0, SIX), "1, TLS": (1, ONE), "6, TLS": (1, SIX)}


def cells() -> dict[tuple[str, str], Contestant]:
    """Who is measured, by line and column."""
    found = {}
    for line, systems in ROWS.items():
        for column, (encrypted, clients) in COLUMNS.items():
            system = systems[encrypted]
            if system is not None:
                found[line, column] = system.echo(*clients, hog="inside")
    return found


def claims() -> list[Claim]:
    """Each compared with itself, so that nobody is left out for being slow."""
    return [
        Claim(f"transport.gil.{one.name}", one, one, RATE, "requests/s", higher_is_better=True)
        for one in cells().values()
    ]


def markdown(series: Mapping[str, harness.Series]) -> str:
    """The table."""
    measured = cells()
    lines = [("", *COLUMNS), ("---",) + ("---:",) * len(COLUMNS)]
    for line in ROWS:
        shown = [
            _cell(series[measured[line, column].name]) if (line, column) in measured else "-"
            for column in COLUMNS
        ]
        lines.append((line, *shown))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(one: harness.Series) -> str:
    if one.failure or not one.figures:
        return f"skipped: {one.failure}"
    return f"{one.median(RATE):,.0f}/s, {one.median(KEPT):.0%}"


def main() -> int:
    """Measure and print; 1 when somebody could not be measured."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transport.gil_table", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    options = parser.parse_args()
    adopt_orphans()
    where = machine.description()
    series = harness.measure(claims(), rounds=options.rounds, quick=options.quick)
    where["load_after"] = machine.load()
    print(f"\n{table.machine_line(where)}\n{table.environment_lines(series.values())}\n")
    print(markdown(series), flush=True)
    return int(any(one.failure for one in series.values()))


if __name__ == "__main__":
    sys.exit(main())
