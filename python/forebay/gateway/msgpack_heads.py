"""The heads of MessagePack values whose content is written, or left where it is, apart.

An encoder copies what it is given, an array inside an extension twice. What writes the heads itself
joins the contents once, and hands on the content of a result without a copy.
Source: the MessagePack specification.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from msgspec import msgpack

__all__ = [
    "array_head",
    "bin_head",
    "bin_start",
    "count_of",
    "ext_head",
    "ext_start",
    "is_container",
    "is_extension",
    "is_map",
    "map_head",
]

_BIN_SIZES: Final = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_EXT_SIZES: Final = {0xC7: ">B", 0xC8: ">H", 0xC9: ">I"}
_COUNTS: Final = {0xDC: (">H", 1), 0xDD: (">I", 1), 0xDE: (">H", 2), 0xDF: (">I", 2)}
_FIXED_EXTS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def map_head(count: int) -> bytes:
    """Of a map of so many pairs."""
    if count < 16:
        return bytes([0x80 | count])
    return struct.pack(">BH", 0xDE, count) if count < 1 << 16 else struct.pack(">BI", 0xDF, count)


def array_head(count: int) -> bytes:
    """Of a list of so many elements."""
    if count < 16:
        return bytes([0x90 | count])
    return struct.pack(">BH", 0xDC, count) if count < 1 << 16 else struct.pack(">BI", 0xDD, count)


def bin_head(size: int) -> bytes:
    """Of so many bytes."""
    return _sized(size, _BIN_SIZES)


def ext_head(code: int, size: int) -> bytes:
    """Of an extension whose payload has so many bytes."""
    return _sized(size, _EXT_SIZES) + struct.pack(">b", code)


def array_extension_head(code: int, dtype: str, shape: Any, size: int) -> bytes:
    """Of an array of so many bytes, as `forebay.executor` sends it; its content comes behind.

    The payload is MessagePack itself: the dtype, the shape and the bytes.
    """
    inner = array_head(3) + msgpack.encode(dtype) + msgpack.encode(shape) + bin_head(size)
    return ext_head(code, len(inner) + size) + inner


def is_extension(first: int) -> bool:
    """Whether a value that begins with this byte is an extension."""
    return first in _EXT_SIZES or first in _FIXED_EXTS


def is_map(first: int) -> bool:
    """Whether a value that begins with this byte is a map."""
    return 0x80 <= first < 0x90 or first in (0xDE, 0xDF)


def bin_start(value: memoryview) -> int | None:
    """Where the bytes of a value begin; None: it is not bytes."""
    size = _BIN_SIZES.get(value[0])
    return None if size is None else 1 + struct.calcsize(size)


def ext_start(value: memoryview) -> tuple[int, int]:
    """The code of an extension, and where its payload begins."""
    at = 1 if value[0] in _FIXED_EXTS else 1 + struct.calcsize(_EXT_SIZES[value[0]])
    code: int = struct.unpack_from(">b", value, at)[0]
    return code, at + 1


def is_container(first: int) -> bool:
    """Whether a value with this first byte is a list or a map."""
    return 0x80 <= first < 0xA0 or first in _COUNTS


def count_of(value: memoryview) -> int:
    """How many values a list or a map says that it holds; 0 of anything else."""
    first = value[0] if len(value) else 0
    if 0x80 <= first < 0x90:
        return 2 * (first & 0x0F)
    if 0x90 <= first < 0xA0:
        return first & 0x0F
    form, each = _COUNTS.get(first, ("", 0))
    if not each or len(value) < 1 + struct.calcsize(form):
        return 0
    count: int = struct.unpack_from(form, value, 1)[0]
    return each * count


def _sized(size: int, forms: dict[int, str]) -> bytes:
    for (first, form), bits in zip(forms.items(), (8, 16, 32), strict=True):
        if size < 1 << bits:
            return bytes([first]) + struct.pack(form, size)
    raise OverflowError(f"{size} bytes are more than MessagePack has a form for")
