"""Render the originals' tables from the JSON of one run: `python -m tools.originals FILE`.

`python -m benchmarks originals --json FILE`, then `python -m tools.originals FILE >
docs/originals.md`. Nothing on the page is written by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HEAD = """# The originals' own tables

After this page you know which figures the five projects that Forebay comes from published, in their own columns, and what Forebay measured beside them.

The authors measured the rows marked "published" on machines that are not known here: compare those rows with each other, never with Forebay's.
All other rows come from one run, the peers and Forebay in turn; they are medians over its rounds.
`python -m benchmarks originals --json FILE` and `python -m tools.originals FILE > docs/originals.md` make this page; `python -m benchmarks echo --help` runs single scenes of the last tables.
"""  # noqa: E501 - a sentence is a line of the page
FOOT = """Where next: [the guides](README.md), or `python -m benchmarks --help` for the rows behind each claim.
"""  # noqa: E501


def render(run: dict[str, Any]) -> str:
    """The page."""
    return "\n".join([HEAD, _machine(run), *map(_table, run["tables"]), FOOT])


def _machine(run: dict[str, Any]) -> str:
    quick = ", shortened (`--quick`)" if run["quick"] else ""
    left_out = ", ".join(run["not_run"])
    facts = [
        f"Measured on {run['began']}{quick}, {run['rounds']} rounds or more.",
        f"Linux {run['kernel']}, {run['cores']} cores, {run['processor']}; load"
        f" {run['load_before']:.2f} before, {run['load_after']:.2f} after.",
        *([f"Not in this run: {left_out}; `make originals` has all."] if left_out else []),
        *(f"{line[0].upper()}{line[1:]}." for line in run["environments"]),
    ]
    return "".join(f"- {fact}\n" for fact in facts)


def _table(table: dict[str, Any]) -> str:
    head, lines = table["columns"], table["lines"]
    rows = [_line(head), _line(["---"] * len(head)), *map(_line, lines)]
    notes = "".join(f"{note}\n" for note in table["notes"])
    return f"## {table['title']}\n\n{notes}{chr(10) if notes else ''}{chr(10).join(rows)}\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main() -> int:
    """Print the page."""
    if len(sys.argv) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    sys.stdout.write(render(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
