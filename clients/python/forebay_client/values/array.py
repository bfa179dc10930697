"""Arrays where numpy is not installed: their bytes, and what they mean."""

from __future__ import annotations

import math
import re
import struct
from typing import Any, Final

__all__ = ["Array", "array_of", "content_of", "is_array"]

_DTYPE: Final = re.compile(
    r"[<>|=]?[biufcSUV][0-9]{1,10}|[<>=]?[mM]8(\[([1-9][0-9]{0,9})?[a-zA-Z]{1,7}\])?"
)
_SIZE: Final = re.compile(r"[<>|=]?([a-zA-Z])([0-9]+)")
_CODES: Final = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
}
"""Of the module `struct`, by kind and size."""


class Array:
    """An array of a request's arguments or result.

    `numpy.asarray` takes one as it is, where there is numpy.

    Attributes:
        dtype: as of numpy's `dtype.str`, such as "<f8".
        shape: length of each axis.
        data: the elements in C order.

    Raises:
        ValueError: the data is not as long as dtype and shape say, or the dtype is none.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...], data: bytes | memoryview) -> None:
        if not _DTYPE.fullmatch(dtype):
            raise ValueError(f"{dtype!r:.100} is no dtype of data")
        shape = tuple(shape)
        if any(type(axis) is not int or axis < 0 for axis in shape):
            raise ValueError(f"{shape!r:.100} is no shape")
        self.dtype = dtype
        self.shape = shape
        self.data = memoryview(data).cast("B")
        if len(self.data) != math.prod(shape) * self.itemsize:
            raise ValueError(
                f"{len(self.data)} bytes are no array of {dtype} with the shape {shape}"
            )

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        found = _SIZE.match(self.dtype)
        assert found is not None  # the dtype was looked at
        return int(found[2]) * (4 if found[1] == "U" else 1)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": self.dtype, "shape": self.shape, "data": self.data}

    def tolist(self) -> Any:
        """Lists of Python's numbers, nested as the axes are.

        Raises:
            ValueError: it has other elements than numbers and truth values.
        """
        code = _CODES.get(self.dtype.lstrip("<>|="))
        if code is None:
            raise ValueError(f"elements of {self.dtype} are no numbers of Python")
        order = ">" if self.dtype[0] == ">" else "<" if self.dtype[0] == "<" else "="
        flat = [value for (value,) in struct.iter_unpack(order + code, self.data)]
        return _nested(flat, self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        mine, others = (self.dtype, self.shape, self.data), (other.dtype, other.shape, other.data)
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Array {self.dtype} {self.shape}>"


def array_of(dtype: Any, shape: Any, content: Any) -> Any:
    """The array of these bytes: numpy's where that is installed.

    Raises:
        ValueError: they are none of that dtype and shape.
    """
    if not isinstance(dtype, str) or not isinstance(shape, list | tuple):
        raise ValueError("an array has a dtype and a shape")
    array = Array(dtype, tuple(shape), content)
    try:
        import numpy
    except ImportError:
        return array
    return numpy.frombuffer(bytearray(array.data), dtype).reshape(array.shape)


def is_array(value: Any) -> bool:
    """Whether a value is an array, of ours or numpy's, or a scalar of numpy's."""
    return hasattr(value, "__array_interface__") and hasattr(value, "dtype")


def content_of(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """The dtype, shape and bytes of an array.

    Raises:
        TypeError: its elements are no data.
    """
    if isinstance(value, Array):
        return value.dtype, value.shape, bytes(value.data)
    if value.dtype.hasobject or value.dtype.fields:
        raise TypeError(f"an array of {value.dtype} is no data")
    return value.dtype.str, tuple(value.shape), value.tobytes()


def _nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = math.prod(shape[1:])
    return [_nested(flat[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
