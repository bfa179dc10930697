"""Ids of requests as people write them: 12 characters of base 32, which sort by time.

The number is milliseconds since 2025, a sequence and the number of the server, as
`crates/executor/src/id.rs` says; the text is Crockford's base 32 in lower case.
"""

from __future__ import annotations

ID_CHARS = 12
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LETTERS = frozenset(_ALPHABET)
_TO_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_BITS = 5


def text_of(number: int) -> str:
    """The id of a number, 12 characters."""
    return "".join(
        _ALPHABET[number >> shift & 31] for shift in range(_BITS * (ID_CHARS - 1), -1, -_BITS)
    )


def number_of(text: str) -> int:
    """The number of a whole id.

    Raises:
        ValueError: it is none.
    """
    if len(text) != ID_CHARS or not _LETTERS.issuperset(text):
        raise ValueError(f"{text!r} is no id")
    return int(text.translate(_TO_DIGITS), 32)
