"""Arrays as JSON and files have them, without numpy, which would cost the gateway 20 MB.

An array is its dtype (numpy's `dtype.str`), its shape, and its bytes in C order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

__all__ = ["DIMENSIONS_MAX", "DTYPE_PATTERN", "Array", "fault_of", "npy_head", "size_of"]

DIMENSIONS_MAX: Final = 32
"""Of numpy 1; numpy 2 has 64."""

BYTES_MAX: Final = 2**63 - 1
"""What numpy counts with."""

ITEM_BYTES_MAX: Final = 2**31 - 1
"""Of one element, which only text and raw bytes can reach."""

DTYPE_PATTERN: Final = (
    r"^(([<>|=]?(b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|[SUV][1-9][0-9]{0,9}))"
    r"|([<>=]?[mM]8(\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?))$"
)
"""Numbers, text of a fixed length, raw bytes, times and spans. No objects: they are no data."""

_DTYPE: Final = re.compile(DTYPE_PATTERN)
_SIZE: Final = re.compile(r"[a-zA-Z]([0-9]+)")
_MULTIPLE: Final = re.compile(r"\[([0-9]+)")
_CHARACTER_BYTES: Final = 4
"""Of numpy's text, which is UTF-32."""

_NPY_MAGIC: Final = b"\x93NUMPY\x01\x00"
_NPY_ALIGNMENT: Final = 64


class Array(NamedTuple):
    """An array; `content` is its bytes in C order, as text in base64 in JSON."""

    dtype: str
    shape: list[int]
    content: Any


def item_bytes(dtype: str) -> int | None:
    """The bytes of one element; None where there is no such dtype, or its elements are no data."""
    if not _DTYPE.fullmatch(dtype):
        return None
    multiple = _MULTIPLE.search(dtype)
    if multiple is not None and int(multiple[1]) > ITEM_BYTES_MAX:
        return None  # numpy counts units in 32 bits
    kind = dtype.lstrip("<>|=")
    found = _SIZE.match(kind)
    size = int(found[1]) if found else 0
    if kind[0] == "U":
        size *= _CHARACTER_BYTES
    return size if size <= ITEM_BYTES_MAX else None


def size_of(dtype: str, shape: Sequence[int]) -> int:
    """The bytes of an array; 0 where there is no such dtype."""
    return math.prod(shape) * (item_bytes(dtype) or 0)


def fault_of(dtype: str, shape: Sequence[int], size: int) -> tuple[str, str, str] | None:
    """What is wrong with an array of so many bytes: the field, what is allowed, what came."""
    item = item_bytes(dtype)
    if item is None:
        return "dtype", "a dtype of numpy such as '<f8', and no objects", f"{dtype!r:.60}"
    if len(shape) > DIMENSIONS_MAX:
        return "shape", f"at most {DIMENSIONS_MAX} dimensions", f"{len(shape)}"
    for number, length in enumerate(shape):
        if not 0 <= length <= BYTES_MAX:
            return f"shape[{number}]", "a number of elements", f"{length!r:.40}"
    if math.prod(length for length in shape if length) * item > BYTES_MAX:
        return "shape", f"at most {BYTES_MAX} bytes", f"{list(shape)!r:.200}"
    needed = math.prod(shape) * item
    if size != needed:
        what = f"{needed} bytes, as {dtype} and {list(shape)!r:.200} need"
        return "data", what, f"{size} bytes"
    return None


def npy_head(dtype: str, shape: Sequence[int]) -> bytes:
    """What stands before the bytes of an array in a file `.npy`.

    Source: numpy.lib.format, version 1.0.
    """
    lengths = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {lengths}, }}"
    size = len(_NPY_MAGIC) + 2 + len(text) + 1
    padded = text + " " * (-size % _NPY_ALIGNMENT) + "\n"
    return _NPY_MAGIC + len(padded).to_bytes(2, "little") + padded.encode("latin-1")
