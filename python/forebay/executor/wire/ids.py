"""Ids of requests as people write them: 12 characters of base 32, which sort by time.

The number is milliseconds since 2025, a sequence and the number of the server, as
`crates/executor/src/id.rs` says; the text is Crockford's base 32 in lower case.
"""

from __future__ import annotations

ID_CHARS = 12
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_BITS = 5


def text_of(number: int) -> str:
    """The id of a number, 12 characters."""
    return "".join(
        _ALPHABET[number >> shift & 31] for shift in range(_BITS * (ID_CHARS - 1), -1, -_BITS)
    )
