"""What a receiver or a command said, for the log and for listings."""

from __future__ import annotations


def in_a_line(text: str) -> str:
    """Text in one line: for each run of what cannot be printed there is a space.

    An answer is written by whoever receives: it is to forge no line of a log and move no cursor.
    """
    return " ".join("".join(it if it.isprintable() else " " for it in text).split())
