"""What commands print: results on stdout, everything else on stderr.

A stream may be closed, or accept only ASCII; other letters are then written as escapes.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from forebay._terminal import COLORS
from forebay._terminal import harmless as harmless
from forebay._terminal import is_terminal as is_terminal
from forebay.errors import Error

SCHEMA = 1
"""The version of the JSON output: members are added, never renamed."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class OutputError(Error):
    """A result could not be written; the command did its work."""


def spell_out() -> None:
    """From now on, write letters that a stream does not accept as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(text: str) -> None:
    """Print a line of a result, at once."""
    put(f"{text}\n")


def put(text: str, *, is_log: bool = False) -> None:
    """Print a piece of a result, at once; does nothing if stdout is closed.

    Control characters are escaped for a terminal, see `harmless`.

    Raises:
        OutputError: it cannot be written; later output is not tried.
        BrokenPipeError: the reader has left.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(harmless(text, sys.stdout, is_log=is_log))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = None  # the interpreter would try again while it ends
        raise OutputError(
            f"the output cannot be written: {error.strerror}; make room, or write it elsewhere"
        ) from error


def note(text: str) -> None:
    """Print a line on stderr."""
    murmur(f"{text}\n")


def murmur(text: str, *, is_log: bool = False) -> None:
    """Print a piece of text on stderr; if it cannot be written, it is lost."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(harmless(text, sys.stderr, is_log=is_log))
        sys.stderr.flush()
    except BlockingIOError:
        pass  # full for now, and non-blocking because another process set it so
    except OSError:
        sys.stderr = None  # as of stdout: it would end with code 120


def say_json(members: dict[str, Any]) -> None:
    """Print one object in one line."""
    import json

    say(json.dumps({"schema": SCHEMA, **members}, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """The JSON form of other values: lists for arrays, msgspec's form for the rest."""
    if hasattr(value, "tolist"):
        return value.tolist()
    import msgspec

    return msgspec.to_builtins(value, str_keys=True)


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """Whether to color: as `--color` says, else on a terminal unless NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    dumb = os.environ.get("TERM") == "dumb"
    return not dumb and not os.environ.get("NO_COLOR") and is_terminal(stream)


def colored(text: str, color: str, *, on: bool) -> str:
    """The text in the color of a status, or "bold" or "dim"; unchanged for other words."""
    code = COLORS.get(color)
    return f"\x1b[{code}m{text}\x1b[0m" if on and code else text


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as text in columns; numbers are aligned right, and line breaks in a cell escaped."""
    texts = [[str(cell).replace("\n", "\\n") for cell in row] for row in rows]
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
    """The number of visible characters."""
    return len(_ESCAPE.sub("", text))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text == "-"
