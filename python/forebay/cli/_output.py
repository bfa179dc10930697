"""What commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

SCHEMA = 1
"""Of the JSON: members are added, never renamed."""

_COLORS = {
    "succeeded": "32",
    "running": "36",
    "failed": "31",
    "dead": "31",
    "cancelled": "33",
    "bold": "1",
    "dim": "2",
}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


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

    say(json.dumps({"schema": SCHEMA, **members}, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """What JSON has no form for: arrays as lists, the others as msgspec has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether to color: as `--color` says, else on a terminal unless NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    return not os.environ.get("NO_COLOR") and stream.isatty() and os.environ.get("TERM") != "dumb"


def colored(text: str, color: str, *, on: bool) -> str:
    """The text in the color of a status, or "bold" or "dim"; as it is where there is none."""
    code = _COLORS.get(color)
    return f"\x1b[{code}m{text}\x1b[0m" if on and code else text


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as text in columns; numbers stand right."""
    texts = [[str(cell) for cell in row] for row in rows]
    numeric = [bool(texts) and all(_is_number(row[at]) for row in texts) for at in range(len(head))]
    widths = [max(_width(row[at]) for row in [list(head), *texts]) for at in range(len(head))]
    lines = []
    for row in [list(head), *texts]:
        cells = zip(row, widths, numeric, strict=True)
        line = "  ".join(_padded(cell, width, right=right) for cell, width, right in cells)
        lines.append(line.rstrip())
    return "\n".join(lines)


def _padded(cell: str, width: int, *, right: bool) -> str:
    blank = " " * (width - _width(cell))
    return blank + cell if right else cell + blank


def _width(text: str) -> int:
    """Characters that are seen."""
    return len(_ESCAPE.sub("", text))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text == "-"
