"""Ids of requests as paths have them; `crates/executor/src/id.rs` says what their bits are."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_beginning", "is_id", "made_ms"]

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PYTHONS: Final = "0123456789abcdefghijklmnopqrstuv"
_DIGITS: Final = str.maketrans(_ALPHABET, _PYTHONS)
"""From Crockford's base 32 to that of `int`."""

_EPOCH_MS: Final = 1_735_689_600_000
"""2025-01-01 in milliseconds since 1970."""

_BITS_BELOW: Final = 16
"""Below the milliseconds."""

_ID: Final = re.compile(rf"[{_ALPHABET}]{{12}}", re.IGNORECASE)
_BEGINNING: Final = re.compile(rf"[{_ALPHABET}]{{1,12}}", re.IGNORECASE)


def is_id(text: str) -> bool:
    """Whether it is a whole id."""
    return _ID.fullmatch(text) is not None


def is_beginning(text: str) -> bool:
    """Whether an id may begin so."""
    return _BEGINNING.fullmatch(text) is not None


def made_ms(id_: str) -> int:
    """When an id was given, in milliseconds since 1970; later where the clock was set back."""
    return (int(id_.translate(_DIGITS), 32) >> _BITS_BELOW) + _EPOCH_MS
