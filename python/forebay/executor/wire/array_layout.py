"""Where large arrays lie beside the head of a value; `parts` draws the whole."""

from __future__ import annotations

import math
import struct
from typing import Any, Final

from forebay.rpc._internal import dtype_of

__all__ = ["MAGIC", "START", "array_beside", "head_bytes", "padding"]

ALIGNMENT: Final = 64
"""A cache line, as of an arena's blocks."""

MAGIC: Final = b"\xc1fb1"
START: Final = struct.Struct("<4sQ")


def array_beside(payload: memoryview) -> Any:
    """The array that an extension stands for, in the memory that the extension itself lies in.

    Raises:
        ValueError: there is none.
    """
    import numpy
    from msgspec import msgpack

    whole: Any = payload.obj
    name, shape, begins = msgpack.decode(payload)
    start = START.size + head_bytes(whole)
    start += len(padding(start)) + begins
    dtype, count = dtype_of(name), math.prod(shape)
    if not 0 <= count * dtype.itemsize <= len(whole) - start:
        raise ValueError(
            f"{count} elements of {name} at byte {start} do not fit in {len(whole)} bytes"
        )
    return numpy.frombuffer(whole, dtype, count, start).reshape(shape)


def head_bytes(whole: Any) -> int:
    """Length of the head.

    Raises:
        ValueError: nothing lies beside it: this is no such message.
    """
    if len(whole) < START.size:
        raise ValueError("an array beside a message that has nothing beside it")
    magic, size = START.unpack_from(whole)
    if magic != MAGIC:
        raise ValueError("an array beside a message that has nothing beside it")
    return int(size)


def padding(size: int) -> bytes:
    """What brings a size to a multiple of the alignment."""
    return bytes(-size % ALIGNMENT)
