"""Dtypes as the text that travels from a server to its clients."""

from __future__ import annotations

import ast
from typing import Any, Final

from forebay._numpy import np
from forebay.errors import ConfigError, ProtocolError

__all__ = ["ADDABLE", "described", "dtype_of", "kind_of", "tensor_dtype"]

ADDABLE: Final = "iufc"
"""Kinds of numbers that can be added, as numpy calls them."""

TEXT_BYTES_MAX: Final = 4096


def tensor_dtype(given: Any) -> np.dtype[Any]:
    """The dtype of a tensor.

    Raises:
        ConfigError: `given` is no dtype, holds Python objects, is empty, or has no text form.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError as error:
        raise ConfigError(f"{given!r} is no dtype: {error}; give what numpy.dtype takes") from error
    if dtype.hasobject:
        raise ConfigError(f"dtype {dtype} holds Python objects, which no other process can use")
    if dtype.itemsize == 0:
        raise ConfigError(f"dtype {dtype} has no bytes; give one with a length, such as 'S8'")
    if not _survives(dtype):
        raise ConfigError(
            f"dtype {dtype} changes when it is written as text and read back; use numpy's own"
            " types, and fields in the order of their offsets"
        )
    return dtype


def described(dtype: np.dtype[Any]) -> str:
    """A dtype as text: numpy's `descr`.

    Raises:
        ConfigError: it has fields that overlap or are out of order, or too many.
    """
    try:
        text = repr(np.lib.format.dtype_to_descr(dtype))
    except ValueError as error:
        raise ConfigError(
            f"dtype {dtype} cannot be written down: {error}; give fields in their order"
        ) from error
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ConfigError(
            f"dtype {str(dtype)[:80]}... takes {len(text.encode())} bytes of text; a server sends"
            f" at most {TEXT_BYTES_MAX}; use fewer fields or shorter names"
        )
    return text


def dtype_of(text: str, item_bytes: int, whose: str) -> np.dtype[Any]:
    """The dtype that a server sent as text, checked so that it cannot harm the client.

    A dtype with Python objects in it would have the server's bytes received into pointers.

    Args:
        text: as `described` writes it.
        item_bytes: of an element, as the server says too.
        whose: the tensor and the server, for the message.

    Raises:
        ProtocolError: a Forebay server cannot have such a dtype.
    """
    try:
        found = _parsed(text)
        if found.itemsize != item_bytes:
            raise ValueError(f"that has {found.itemsize} bytes, and the server says {item_bytes}")
    except Exception as error:  # numpy raises anything for a hostile text
        raise ProtocolError(
            f"{whose}: invalid dtype {text[:80]!r}: {error or type(error).__name__}"
        ) from error
    return found


def _parsed(text: str) -> np.dtype[Any]:
    found: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
    if found.hasobject:
        raise ValueError("that holds Python objects")
    if found.itemsize == 0 or found.subdtype is not None:
        raise ValueError("that is no dtype of an array's elements")
    return found


def _survives(dtype: np.dtype[Any]) -> bool:
    try:
        return _parsed(described(dtype)) == dtype
    except (ValueError, SyntaxError, TypeError):
        return False


def kind_of(dtype: np.dtype[Any]) -> str:
    """What the server takes its elements for; numbers of the other byte order are not added up."""
    return dtype.kind if dtype.isnative else "V"
