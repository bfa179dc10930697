"""MessagePack in Python alone (github.com/msgpack/msgpack, spec.md), where msgspec is missing.

Bytes stay bytes and times stay times, which JSON has no forms for. Extensions are left to the
caller, the timestamp apart.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

__all__ = ["LIST", "MAP", "Extension", "pack", "put_head", "unpack"]

DEPTH_MAX: Final = 200
"""Of maps and lists in each other."""

TIMESTAMP: Final = -1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS: Final = 10**9


class Head(NamedTuple):
    """How a kind of value begins.

    Attributes:
        fixed: its byte where the length is in it.
        fixed_below: lengths that are in it.
        codes: its byte before a length of 1, 2 and 4 bytes.
    """

    fixed: int
    fixed_below: int
    codes: tuple[int | None, int, int]


TEXT: Final = Head(0xA0, 32, (0xD9, 0xDA, 0xDB))
BYTES: Final = Head(0, 0, (0xC4, 0xC5, 0xC6))
LIST: Final = Head(0x90, 16, (None, 0xDC, 0xDD))
MAP: Final = Head(0x80, 16, (None, 0xDE, 0xDF))
EXTENSION: Final = Head(0, 0, (0xC7, 0xC8, 0xC9))


class Extension:
    """What another type is on the wire: a number and bytes."""

    __slots__ = ("code", "data")

    def __init__(self, code: int, data: bytes) -> None:
        self.code = code
        self.data = data


def pack(value: Any, other: Callable[[Any], Any]) -> bytes:
    """The bytes of a value.

    Args:
        value: None, truth values, numbers, texts, bytes, times, dataclasses, enums, lists, maps.
        other: gets a value of another type, and returns one that stands for it.

    Raises:
        TypeError: `other` raised it. OverflowError: an integer needs more than 64 bits.
        ValueError: it is nested too deeply.
    """
    out = bytearray()
    _write(value, out, other, 0)
    return bytes(out)


def unpack(data: Any, extension: Callable[[int, memoryview], Any]) -> Any:
    """The value of bytes.

    Args:
        data: a buffer.
        extension: gets the number and the bytes of each extension.

    Raises:
        ValueError: they are no MessagePack, or more follows.
    """
    reader = _Reader(memoryview(data).cast("B"), extension)
    value = reader.value(0)
    reader.end()
    return value


def _write(value: Any, out: bytearray, other: Callable[[Any], Any], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
    if value is None or value is True or value is False:
        out.append({None: 0xC0, False: 0xC2, True: 0xC3}[value])
    elif isinstance(value, enum.Enum):
        _write(value.value, out, other, depth + 1)
    elif isinstance(value, int):
        _write_integer(value, out)
    elif isinstance(value, float):
        out += b"\xcb" + struct.pack(">d", value)
    elif isinstance(value, str):
        text = value.encode()
        put_head(TEXT, len(text), out)
        out += text
    elif isinstance(value, bytes | bytearray | memoryview):
        content = bytes(value)
        put_head(BYTES, len(content), out)
        out += content
    elif isinstance(value, dict):
        _write_map(value, out, other, depth)
    elif isinstance(value, list | tuple | set | frozenset):
        put_head(LIST, len(value), out)
        for one in value:
            _write(one, out, other, depth + 1)
    elif isinstance(value, Extension):
        _write_extension(value, out)
    else:
        _write(_plain(value, other), out, other, depth + 1)


def _write_map(value: dict[Any, Any], out: bytearray, other: Any, depth: int) -> None:
    put_head(MAP, len(value), out)
    for key, one in value.items():
        _write(key, out, other, depth + 1)
        _write(one, out, other, depth + 1)


def _plain(value: Any, other: Callable[[Any], Any]) -> Any:
    """What stands for a value of a further type; as msgspec writes it."""
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else _timestamp(value)
    if isinstance(value, date | clock):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return other(value)


def _write_integer(value: int, out: bytearray) -> None:
    if -32 <= value < 128:
        out += struct.pack("b", value) if value < 0 else bytes((value,))
        return
    codes = (0xCC, 0xCD, 0xCE, 0xCF) if value >= 0 else (0xD0, 0xD1, 0xD2, 0xD3)
    for code, size in zip(codes, (1, 2, 4, 8), strict=True):
        try:
            out += bytes((code,)) + value.to_bytes(size, "big", signed=value < 0)
        except OverflowError:
            continue
        return
    raise OverflowError(f"the integer {value} needs more than 64 bits")


def put_head(kind: Head, size: int, out: bytearray) -> None:
    """Add the head of what has a length: one byte, or a length of 1, 2 or 4 bytes.

    Raises:
        OverflowError: it is too long.
    """
    if size < kind.fixed_below:
        out.append(kind.fixed | size)
        return
    for code, width in zip(kind.codes, (1, 2, 4), strict=True):
        if code is not None and size < 1 << 8 * width:
            out.append(code)
            out += size.to_bytes(width, "big")
            return
    raise OverflowError(f"a length of {size} needs more than 32 bits")


def _write_extension(value: Extension, out: bytearray) -> None:
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(value.data))
    if fixed is not None:
        out.append(fixed)
    else:
        put_head(EXTENSION, len(value.data), out)
    out += struct.pack("b", value.code)
    out += value.data


def _timestamp(value: datetime) -> Extension:
    since = value - _EPOCH
    seconds, nanos = since.days * 86_400 + since.seconds, since.microseconds * 1000
    if 0 <= seconds < 1 << 34:
        if nanos == 0 and seconds < 1 << 32:
            return Extension(TIMESTAMP, struct.pack(">I", seconds))
        return Extension(TIMESTAMP, struct.pack(">Q", nanos << 34 | seconds))
    return Extension(TIMESTAMP, struct.pack(">Iq", nanos, seconds))


def _time_of(data: memoryview) -> datetime:
    if len(data) == 4:
        nanos, seconds = 0, int.from_bytes(data, "big")
    elif len(data) == 8:
        both = int.from_bytes(data, "big")
        nanos, seconds = both >> 34, both & (1 << 34) - 1
    elif len(data) == 12:
        nanos, seconds = struct.unpack(">Iq", data)
    else:
        raise ValueError(f"a timestamp of {len(data)} bytes")
    if nanos >= _NANOS:
        raise ValueError(f"a timestamp with {nanos} nanoseconds")
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ValueError(f"a timestamp of {seconds} seconds") from None


_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_COUNTS: Final = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_FIXED_EXTENSIONS: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_EXTENSIONS: Final = {0xC7: 1, 0xC8: 2, 0xC9: 4}


class _Reader:
    """Reads one value after another."""

    def __init__(self, data: memoryview, extension: Callable[[int, memoryview], Any]) -> None:
        self._data = data
        self._at = 0
        self._extension = extension

    def value(self, depth: int) -> Any:
        """The next value."""
        if depth > DEPTH_MAX:
            raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
        code = self._take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 256
        if code < 0x90:
            return self._map(code & 15, depth)
        if code < 0xA0:
            return self._list(code & 15, depth)
        if code < 0xC0:
            return self._text(code & 31)
        return self._long(code, depth)

    def end(self) -> None:
        """Nothing may follow."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes follow the value")

    def _long(self, code: int, depth: int) -> Any:
        """A value whose first byte says only what it is."""
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if code in (0xCA, 0xCB):
            width = 4 if code == 0xCA else 8
            return struct.unpack(">f" if width == 4 else ">d", self._take(width))[0]
        if 0xCC <= code <= 0xD3:
            width = 1 << (code - 0xCC & 3)
            return int.from_bytes(self._take(width), "big", signed=code >= 0xD0)
        if code in _SIZES:
            size = self._number(_SIZES[code])
            return self._text(size) if code >= 0xD9 else bytes(self._take(size))
        if code in _COUNTS:
            count = self._number(_COUNTS[code])
            return self._map(count, depth) if code >= 0xDE else self._list(count, depth)
        size = _FIXED_EXTENSIONS.get(code, -1)
        if code in _EXTENSIONS:
            size = self._number(_EXTENSIONS[code])
        if size < 0:
            raise ValueError(f"a value begins with the byte {code:#x}")
        number = struct.unpack("b", self._take(1))[0]
        content = self._take(size)
        return _time_of(content) if number == TIMESTAMP else self._extension(number, content)

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _text(self, size: int) -> str:
        return str(self._take(size), "utf-8")

    def _list(self, count: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self._checked(count))]

    def _map(self, count: int, depth: int) -> dict[Any, Any]:
        pairs = {}
        for _ in range(self._checked(count)):
            key = self.value(depth + 1)
            try:
                pairs[key] = self.value(depth + 1)
            except TypeError:
                raise ValueError(f"a {type(key).__name__} is no key") from None
        return pairs

    def _checked(self, count: int) -> int:
        """A number of values, each of which has a byte at least."""
        if count > len(self._data) - self._at:
            raise ValueError(f"{count} values in {len(self._data) - self._at} bytes")
        return count

    def _take(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            raise ValueError("the bytes end within a value")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken
