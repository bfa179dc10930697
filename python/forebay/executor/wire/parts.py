"""A value as MessagePack with its large arrays beside it, as results lie in files.

    magic (4 bytes), bytes of the head (u64, little-endian), the head, zeros, array, zeros, ...

The head is MessagePack in which an extension stands for each array: its dtype, its shape, and where
it begins, counted from the first one. Each begins at a multiple of 64 bytes, so that a mapped file
gives arrays that are aligned and not copied; inside MessagePack they would begin anywhere.
The magic begins with a byte that no MessagePack begins with, so that both are told apart.
"""

from __future__ import annotations

import mmap
from typing import Any, Final

from forebay.executor.wire import codec
from forebay.executor.wire.array_layout import MAGIC, START, head_bytes, padding
from forebay.executor.wire.errors import result_error

__all__ = ["Encoder", "decode"]

BESIDE_BYTES_MIN: Final = 64 << 10
"""Smaller arrays stay in the head: a copy of one costs less than its padding and bookkeeping."""

Parts = list[Any]
"""Buffers of bytes, one behind the other."""


class Encoder:
    """Encodes one value after another. Not thread-safe."""

    __slots__ = ("_arrays", "_bytes", "_encode")

    def __init__(self) -> None:
        from msgspec import msgpack

        self._encode = msgpack.Encoder(enc_hook=self._to_data).encode
        self._arrays: Parts = []
        self._bytes = 0

    def encode(self, value: Any) -> Parts:
        """The parts of a value; one part, which is MessagePack, where it holds no large array.

        Arrays are not copied: they must not change before their parts have been written.

        Raises:
            TypeError, OverflowError: as of `encode` of `forebay.executor.wire.codec`.
        """
        try:
            head = self._encode(value)
            arrays = self._arrays
        finally:
            self._arrays, self._bytes = [], 0
        if not arrays:
            return [head]
        start = START.pack(MAGIC, len(head))
        return [start, head, padding(len(start) + len(head)), *arrays]

    def _to_data(self, value: Any) -> Any:
        """What stands for a value that MessagePack has no form for."""
        if not codec.is_array_value(value) or value.nbytes < BESIDE_BYTES_MIN:
            return codec.to_data(value)
        content = codec.content_of(value)
        begins = self._bytes
        behind = padding(content.nbytes)
        self._arrays += content, behind
        self._bytes += content.nbytes + len(behind)
        return codec.extension(codec.ARRAY_BESIDE, value, begins)


def decode(blob: Any, type: Any = Any) -> Any:
    """The value of a result as it travels or lies in its file, as `type` where one is given.

    Args:
        blob: a buffer. Arrays that lie beside the head are views of it where it is a mapped file or
            a bytearray, and of a copy of it otherwise.
        type: an annotation that `check_type` lets pass.

    Raises:
        msgspec.ValidationError, msgspec.DecodeError: as of `forebay.executor.wire.codec.decode`.
    """
    if memoryview(blob)[:1] != MAGIC[:1]:
        return codec.decode(blob, type)
    whole = blob if isinstance(blob, mmap.mmap | bytearray) else bytearray(blob)
    end = START.size + head_bytes(whole)
    return codec.decode(memoryview(whole)[START.size : end], type)


def decode_result(blob: Any, type: Any, name: str) -> Any:
    """The value of the result of a request.

    Raises:
        RemoteError: it is not what the annotation says; also a TypeError.
    """
    try:
        return decode(blob, type)
    except Exception as error:
        from msgspec import DecodeError  # here, as each result would pay for it above

        if isinstance(error, DecodeError):  # ValidationError too
            raise result_error(name, error) from None
        raise
