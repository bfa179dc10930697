"""What commands print: results on stdout, everything else on stderr.

A stream may be closed, and take no letters beyond ASCII; what it cannot take is then spelt out.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, TextIO

from forebay.errors import Error

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

_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_FOREIGN = re.compile(rf"(\x1b\[(?:0|{'|'.join(_COLORS.values())})m)|{_CONTROL}")
"""Control characters beside those of our own colors."""
_FOREIGN_IN_LOGS = re.compile(rf"(\x1b\[[0-9;]*m|[\r\b])|{_CONTROL}")
"""The same where programs draw bars and choose colors."""


class OutputError(Error):
    """A result could not be written; what was done is done."""


def spell_out() -> None:
    """From now on, write letters that the streams cannot take as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def harmless(text: str, stream: IO[str] | None, *, is_log: bool = False) -> str:
    """Text for a terminal with what would command it spelt out; for anything else as it is.

    Texts of requests may be anybody's data, and a terminal that prints them obeys them: it changes
    its title, clears itself, or answers into the shell's input.

    Args:
        text: what is written.
        stream: where.
        is_log: leave colors of any kind and a return to the line's begin.
    """
    if not is_terminal(stream):
        return text
    foreign = _FOREIGN_IN_LOGS if is_log else _FOREIGN
    return foreign.sub(lambda found: found[1] or f"\\x{ord(found[0]):02x}", text)


def say(text: str) -> None:
    """Print a line of a result, at once."""
    put(f"{text}\n")


def put(text: str, *, is_log: bool = False) -> None:
    """Print a piece of a result, at once; nobody reads it where stdout is closed.

    On a terminal without what would command it, see `harmless`.

    Raises:
        OutputError: it cannot be written, and nothing else will be.
        BrokenPipeError: whoever read it has enough.
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
    """Print a line that is no result."""
    murmur(f"{text}\n")


def murmur(text: str, *, is_log: bool = False) -> None:
    """Print a piece of what is no result; where it cannot be written it is lost."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(harmless(text, sys.stderr, is_log=is_log))
        sys.stderr.flush()
    except BlockingIOError:
        pass  # full for now: whoever reads it shares it with others that do not block
    except OSError:
        sys.stderr = None  # as of stdout: it would end with code 120


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


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether somebody looks at it; one that is closed is None."""
    return stream is not None and stream.isatty()


def wants_color(choice: str, stream: TextIO | None) -> bool:
    """Whether to color: as `--color` says, else on a terminal unless NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    dumb = os.environ.get("TERM") == "dumb"
    return not dumb and not os.environ.get("NO_COLOR") and is_terminal(stream)


def colored(text: str, color: str, *, on: bool) -> str:
    """The text in the color of a status, or "bold" or "dim"; as it is where there is none."""
    code = _COLORS.get(color)
    return f"\x1b[{code}m{text}\x1b[0m" if on and code else text


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as text in columns; numbers stand right, and the lines of a cell in one."""
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
    """Characters that are seen."""
    return len(_ESCAPE.sub("", text))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit() or text == "-"
