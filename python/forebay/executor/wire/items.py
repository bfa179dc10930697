"""The head of a file of items, as crates/executor/src/items/mod.rs reads it too.

The magic, then the epoch, how many items there are and where the last one ends, all little-endian;
the first one begins at `HEAD_BYTES`. An item is its length in 4 bytes and its bytes.
"""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

__all__ = [
    "COUNTS",
    "COUNTS_AT",
    "DIRECTORY",
    "HEAD_BYTES",
    "LENGTH",
    "Head",
    "first_head",
    "head_of",
]

DIRECTORY: Final = "items"
"""In the state directory; a file has the id of its request as its name."""

HEAD_BYTES: Final = 64

COUNTS: Final = struct.Struct("<QQ")
"""How many items there are, and where the last one ends."""

COUNTS_AT: Final = 16
LENGTH: Final = struct.Struct("<I")

_MAGIC: Final = b"FBITEMS1"
_HEAD: Final = struct.Struct("<8sQQQ")


class Head(NamedTuple):
    """What a file of items says of itself.

    Attributes:
        epoch: of its items.
        number: of the last one; 0 without one.
        end: where that ends.
    """

    epoch: int
    number: int
    end: int


def first_head(epoch: int) -> bytes:
    """The head of a file without items."""
    return _HEAD.pack(_MAGIC, epoch, 0, HEAD_BYTES).ljust(HEAD_BYTES, b"\0")


def head_of(path: str) -> Head | None:
    """The head of a file of items; None: there is none, or it is none.

    Cost: three system calls.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        said = os.pread(descriptor, _HEAD.size, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(said) < _HEAD.size or not said.startswith(_MAGIC):
        return None
    return Head(*_HEAD.unpack(said)[1:])
