"""What commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

SCHEMA = 1
"""Of the JSON: members are added, never renamed."""


def say(text: str) -> None:
    """Print a line of a result, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a line that is no result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def say_json(members: dict[str, Any]) -> None:
    """Print one object in one line."""
    import json

    say(json.dumps({"schema": SCHEMA, **members}))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as text in columns; numbers stand right."""
    texts = [[str(cell) for cell in row] for row in rows]
    numeric = [bool(texts) and all(_is_number(row[at]) for row in texts) for at in range(len(head))]
    widths = [max(len(row[at]) for row in [list(head), *texts]) for at in range(len(head))]
    lines = []
    for row in [list(head), *texts]:
        cells = zip(row, widths, numeric, strict=True)
        line = "  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in cells)
        lines.append(line.rstrip())
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text == "-"
