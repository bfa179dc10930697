"""Ids of requests as people write them: 12 characters of base 32, which sort by time.

The number is 44 bits of milliseconds since 2025 and 16 bits of sequence; the text is Crockford's
base 32 in lower case, without i, l, o and u.
"""

from __future__ import annotations

ID_CHARS = 12
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {char: value for value, char in enumerate(_ALPHABET)}
_BITS = 5


def text_of(number: int) -> str:
    """The id of a number, 12 characters."""
    return "".join(
        _ALPHABET[number >> shift & 31] for shift in range(_BITS * (ID_CHARS - 1), -1, -_BITS)
    )


def span_of(prefix: str) -> tuple[int, int]:
    """The numbers whose ids begin with a prefix: the first of them, and the first beyond.

    Raises:
        ValueError: it is empty, too long, or has a character that no id has.
    """
    text = prefix.lower()
    if not 1 <= len(text) <= ID_CHARS or not all(char in _VALUES for char in text):
        raise ValueError(f"{prefix!r} is no id, nor the beginning of one")
    value = 0
    for char in text:
        value = value << _BITS | _VALUES[char]
    shift = _BITS * (ID_CHARS - len(text))
    return value << shift, value + 1 << shift
