"""Each original's own tables, in its own columns, with ours beside them, from one run.

`python -m benchmarks originals [--quick] [--only NAME] [--json FILE]`; the page is rendered from
the file by `python -m tools.originals FILE > docs/originals.md`.
What is measured here is measured in one run on one machine; what is marked as published is not.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine, table
from benchmarks.harness import ROUNDS_MIN, Series
from benchmarks.originals.blocks import BLOCKS
from benchmarks.originals.comms import COMMS
from benchmarks.originals.original import Table
from benchmarks.originals.pool import POOL
from benchmarks.originals.server import SERVER
from benchmarks.originals.verbs import VERBS
from benchmarks.runner import adopt_orphans

ORIGINALS = {each.name: each for each in (POOL, VERBS, SERVER, BLOCKS, COMMS)}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks originals",
        description="Print each original's own tables with ours beside them, from one run.",
    )
    parser.add_argument("--quick", action="store_true", help="shorter rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS_MIN, metavar="N")
    parser.add_argument("--only", action="append", choices=list(ORIGINALS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables there")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Measure and print; 1 when somebody could not be measured."""
    options = parse(arguments)
    adopt_orphans()
    result: dict[str, Any] = {"began": _now(), **machine.description(), "quick": options.quick}
    series: dict[str, Series] = {}
    tables: list[Table] = []
    for name in options.only or ORIGINALS:
        found = ORIGINALS[name].measure(rounds=options.rounds, quick=options.quick)
        tables += ORIGINALS[name].tables(found)
        series |= found
    result |= {
        "load_after": machine.load(),
        "rounds": options.rounds,
        "not_run": [name for name in ORIGINALS if name not in (options.only or ORIGINALS)],
        "environments": table.environment_lines(series.values()).splitlines(),
        "tables": [_plain(each) for each in tables],
        "figures": {name: one.figures for name, one in series.items()},
    }
    for each in tables:
        print(f"\n{each.title}\n\n{table.aligned(tuple(each.columns), map(tuple, each.lines))}")
        print("".join(f"\n{note}" for note in each.notes), flush=True)
    print(f"\n{table.machine_line(result)}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return int(any(one.failure for one in series.values()))


def _plain(each: Table) -> dict[str, Any]:
    return {
        "title": each.title,
        "notes": list(each.notes),
        "columns": list(each.columns),
        "lines": [list(line) for line in each.lines],
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
