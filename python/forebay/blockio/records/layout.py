"""Where the parts of a record file lie, as its header says.

A file is a header of 4096 bytes, two commit blocks of 4096 bytes each, and records from byte
12,288 on.
Record `i`, counted from 0 on, begins at `12288 + (i % slots) * stride`; a file without a
capacity has no slots, and no `%`.

A stride is the record with its checksum, if it has one. It is padded to whole sectors where that
wastes an eighth at most, so that O_DIRECT reads hit whole records; else records lie packed.

A circular file has two groups of slots more than its capacity. While a group is written, the
window of the commit before it is whole, and so is the window of the one before that: a torn
commit block costs its group, and never a record of the window.
"""

from __future__ import annotations

import itertools
import json
import operator
import re
import struct
from dataclasses import dataclass
from typing import Any, Final, Self

from forebay import _core
from forebay._numpy import Array, np
from forebay.errors import BrokenError, ConfigError

__all__ = [
    "BLOCK_BYTES",
    "CAPACITY_MAX",
    "DATA_OFFSET",
    "Layout",
    "checksum",
    "describe",
    "numbered_checksums",
    "record_dtype",
]

BLOCK_BYTES: Final = 4096
"""Of the header and of each commit block; a page, so that one write of it reaches one page."""

DATA_OFFSET: Final = 3 * BLOCK_BYTES
SECTOR_BYTES: Final = 512
WASTE: Final = 8
"""Padding is at most this part of the stride."""

CHECKSUM_BYTES: Final = 4
CAPACITY_MAX: Final = 1 << 40
"""`capacity_max`, in records."""

RECORD_BYTES_MAX: Final = 1 << 30
"""`record_bytes_max`: what one read of the kernel surely takes."""

GROUP_BYTES: Final = 4 << 20
"""Of a circular file, about so much is appended between two syncs."""

MAGIC: Final = b"fbrecord"
VERSION: Final = 2
CHECKSUMS: Final = 1
"""The flag of a file whose records carry checksums."""

_HEAD: Final = struct.Struct("<8sIIQQQQI")
_TYPE: Final = re.compile(r"[<>|=]?[biufcSUVmM]\d{0,10}(\[\d{0,10}[A-Za-z]{1,7}(/\d{1,10})?\])?")
"""Of one item, as numpy's `descr` has it; none that holds pointers, and none of several types."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the header of a record file says.

    Attributes:
        dtype: of a record; it may have a shape of its own, as `numpy.dtype("(768,)f4")` has.
        stride_bytes: from the start of a record to the start of the next.
        capacity: records in the window of a circular file; 0: the file grows without end.
        slots: records that a circular file has room for; 0 where it has no capacity.
        checksums: whether each record is followed by its checksum.
    """

    dtype: np.dtype[Any]
    stride_bytes: int
    capacity: int
    slots: int
    checksums: bool

    @classmethod
    def new(cls, dtype: np.dtype[Any], capacity: int, *, checksums: bool) -> Self:
        """The layout of a file that does not exist yet."""
        stride = _stride_bytes(dtype.itemsize + CHECKSUM_BYTES * checksums)
        group = max(1, min(GROUP_BYTES // stride, -(-capacity // 4)))
        slots = capacity + 2 * group if capacity else 0
        return cls(dtype, stride, capacity, slots, checksums)

    @property
    def record_bytes(self) -> int:
        """Of a record without checksum and padding."""
        return self.dtype.itemsize

    @property
    def max_group(self) -> int:
        """Records that may be appended between two commits; 0: any number."""
        return (self.slots - self.capacity) // 2

    def first(self, appended: int) -> int:
        """The oldest record of the window when so many were appended."""
        return max(0, appended - self.capacity) if self.capacity else 0

    def first_whole(self, appended: int) -> int:
        """The oldest record that no append can be overwriting while this is the newest commit."""
        return max(0, appended - self.capacity - self.max_group) if self.capacity else 0

    def offset(self, number: int) -> int:
        """Where a record begins, in bytes from the start of the file."""
        slot = number % self.slots if self.slots else number
        return DATA_OFFSET + slot * self.stride_bytes

    def offsets(self, numbers: Array) -> Array:
        """Where records begin, as u8[n]; `numbers` is i8[n]."""
        slots = numbers % self.slots if self.slots else numbers
        return (slots * self.stride_bytes + DATA_OFFSET).astype(np.uint64)

    def data_bytes(self, appended: int) -> int:
        """How long the file is at least when so many records were appended."""
        return DATA_OFFSET + min(appended, self.slots or appended) * self.stride_bytes

    def batch(self, block: Array, n: int) -> Array:
        """The records that were read into a block, as an array over its memory.

        Args:
            block: u1, contiguous, `n * stride_bytes` or more.
            n: how many.
        """
        base, shape = self.dtype.base, self.dtype.shape
        inner = itertools.accumulate(reversed(shape[1:]), operator.mul, initial=base.itemsize)
        strides = (self.stride_bytes, *reversed(list(inner)[: len(shape)]))
        return np.ndarray((n, *shape), base, buffer=block, strides=strides)

    def encode(self) -> bytes:
        """The header block."""
        description = describe(self.dtype).encode()
        head = _HEAD.pack(
            MAGIC,
            VERSION,
            CHECKSUMS * self.checksums,
            self.record_bytes,
            self.stride_bytes,
            self.capacity,
            self.slots,
            len(description),
        )
        room = BLOCK_BYTES - CHECKSUM_BYTES - _HEAD.size
        if len(description) > room:
            raise ConfigError(
                f"the dtype's description has {len(description)} bytes, the header has room for"
                f" {room}; give its fields shorter names, or fewer fields"
            )
        return sealed(head + description)

    @classmethod
    def decode(cls, block: bytes, path: str) -> Self:
        """What a header block says.

        Raises:
            ConfigError: it is no record file, or of a later version.
            BrokenError: it is damaged.
        """
        if len(block) < BLOCK_BYTES or not block.startswith(MAGIC):
            raise ConfigError(
                f"{path} is no record file: it does not begin with {MAGIC!r};"
                " give another path, and mode='a' makes one"
            )
        if not is_sealed(block):
            raise damaged(path, "the header's checksum is wrong")
        _, version, flags, record_bytes, stride, capacity, slots, length = _HEAD.unpack_from(block)
        if version != VERSION:
            raise ConfigError(
                f"record file {path} has format {version}, and this Forebay knows {VERSION};"
                " open it with the one that wrote it, and copy its records to a new file"
            )
        dtype = _stored_dtype(block[_HEAD.size : _HEAD.size + length], path)
        if dtype.itemsize != record_bytes:
            raise damaged(path, f"dtype {dtype} has not the {record_bytes} bytes of a record")
        if flags & ~CHECKSUMS or capacity > CAPACITY_MAX:
            raise damaged(path, f"flags {flags:#x} and a capacity of {capacity} are unknown")
        layout = cls.new(dtype, capacity, checksums=bool(flags & CHECKSUMS))
        if (stride, slots) != (layout.stride_bytes, layout.slots):
            raise damaged(
                path,
                f"its header says a stride of {stride} bytes and {slots} slots, where records"
                f" of dtype {dtype} have {layout.stride_bytes} and {layout.slots}",
            )
        return layout


def damaged(path: str, what: str) -> BrokenError:
    """The error of a file that cannot be believed."""
    return BrokenError(
        f"record file {path} is damaged: {what}; restore it from a copy", delivered="no"
    )


def checksum(data: bytes) -> bytes:
    """The CRC-32C of some bytes, as the file has it."""
    return _core.record_checksums(data, len(data), len(data))


def numbered_checksums(records: Array, layout: Layout, numbers: Array) -> Array:
    """The checksums of records that lie in strides, each of its bytes and of its number.

    Args:
        records: u1, contiguous.
        layout: of the file.
        numbers: of the records, as i8[n].
    """
    record, stride = layout.record_bytes, layout.stride_bytes
    sums = _core.record_checksums(records.data, record, stride, np.ascontiguousarray(numbers).data)
    return np.frombuffer(sums, "<u4")


def sealed(content: bytes) -> bytes:
    """A block of 4096 bytes whose last four are its checksum."""
    content = content.ljust(BLOCK_BYTES - CHECKSUM_BYTES, b"\0")
    return content + checksum(content)


def is_sealed(block: bytes) -> bool:
    """Whether the checksum of a block is right."""
    return checksum(block[:-CHECKSUM_BYTES]) == block[-CHECKSUM_BYTES:]


def record_dtype(given: Any) -> np.dtype[Any]:
    """The dtype of a record.

    Raises:
        ConfigError: it is no dtype, holds Python objects, is empty, too large, or has no text form.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError as error:
        raise ConfigError(f"{given!r} is no dtype: {error}; give what numpy.dtype takes") from error
    if dtype.hasobject:
        raise ConfigError(
            f"dtype {dtype} holds Python objects, which no file can; use numbers, 'S' or 'U'"
        )
    if not 1 <= dtype.itemsize <= RECORD_BYTES_MAX:
        raise ConfigError(
            f"a record of dtype {dtype} has {dtype.itemsize} bytes;"
            f" it must have 1 to record_bytes_max ({RECORD_BYTES_MAX})"
        )
    if not _is_kept(dtype):
        raise ConfigError(
            f"dtype {dtype} does not survive being written down;"
            " use numpy's own types, and fields in the order of their offsets"
        )
    return dtype


def describe(dtype: np.dtype[Any]) -> str:
    """A dtype as JSON: numpy's `descr` of one item, and the shape of a record.

    Raises:
        ConfigError: fields overlap or lie in another order than their offsets.
    """
    try:
        descr = np.lib.format.dtype_to_descr(dtype.base)
    except ValueError as error:
        raise ConfigError(
            f"dtype {dtype} cannot be written down: {error}; give fields in their order"
        ) from error
    return json.dumps({"descr": descr, "shape": dtype.shape}, separators=(",", ":"))


def _is_kept(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is the same when it is read again."""
    description = describe(dtype)
    try:
        return _dtype_of(description) == dtype
    except (ValueError, TypeError):  # an array of arrays, which is described as a pair
        return False


def _stored_dtype(description: bytes, path: str) -> np.dtype[Any]:
    """The dtype that a header describes, held to what `record_dtype` takes: anybody may have it.

    Raises:
        BrokenError: it describes none, or none of records.
    """
    try:
        return record_dtype(_dtype_of(description.decode()))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise damaged(path, f"its header describes no dtype of records ({error})") from error


def _dtype_of(description: str) -> np.dtype[Any]:
    described = json.loads(description)
    base: np.dtype[Any] = np.lib.format.descr_to_dtype(_tuples(described["descr"]))
    dtype: np.dtype[Any] = np.dtype((base, tuple(map(operator.index, described["shape"]))))
    return dtype


def _tuples(descr: Any) -> Any:
    """A `descr` whose tuples JSON made lists: a type, or fields with a name and a type each.

    Raises:
        ValueError, TypeError: it is neither.
    """
    if isinstance(descr, str):
        if not _TYPE.fullmatch(descr):
            raise ValueError(f"{descr!r} is no type of numbers, text or bytes")
        return descr
    return [
        (name if isinstance(name, str) else tuple(name), _tuples(kind), *map(tuple, shape))
        for name, kind, *shape in descr
    ]


def _stride_bytes(content_bytes: int) -> int:
    padded = -(-content_bytes // SECTOR_BYTES) * SECTOR_BYTES
    return padded if (padded - content_bytes) * WASTE <= padded else content_bytes
