"""What a terminal may be sent: texts of others without the control characters that it obeys."""

from __future__ import annotations

import re
from typing import IO

__all__ = ["COLORS", "harmless", "is_terminal"]

COLORS = {
    "succeeded": "32",
    "running": "36",
    "failed": "31",
    "dead": "31",
    "cancelled": "33",
    "bold": "1",
    "dim": "2",
}
"""Codes of the words that are colored."""

_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_FOREIGN = re.compile(rf"(\x1b\[(?:0|{'|'.join(COLORS.values())})m)|{_CONTROL}")
"""Control characters, but those of our own colors."""
_FOREIGN_IN_LOGS = re.compile(rf"(\x1b\[[0-9;]*m|[\r\b])|{_CONTROL}")
"""Control characters in logs, where programs may choose colors and draw bars."""


def harmless(text: str, stream: IO[str] | None, *, is_log: bool = False) -> str:
    """Text for a terminal with its control characters as escapes; unchanged for other streams.

    Texts of requests may come from anyone, and a terminal obeys control sequences in them: it
    changes its title, clears the screen, or writes into the shell's input.

    Args:
        text: what is written.
        stream: where.
        is_log: keep colors of any kind, carriage returns and backspaces.
    """
    if not is_terminal(stream):
        return text
    foreign = _FOREIGN_IN_LOGS if is_log else _FOREIGN
    return foreign.sub(lambda found: found[1] or f"\\x{ord(found[0]):02x}", text)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a stream is a terminal; a closed stream is None."""
    return stream is not None and stream.isatty()
