"""How arguments and results of requests become bytes, and typed values again.

MessagePack by msgspec, which is loaded on first use (33 ms): importing an application costs none of
it. What plain MessagePack has no form for travels so: bytes as bytes, an aware datetime as its
timestamp, a naive one as text, dataclasses and structs as maps, a numpy array as an extension with
its dtype, its shape and its bytes, a numpy scalar as the Python value.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from forebay.errors import ConfigError
from forebay.executor.app.types import check_type, is_array
from forebay.rpc._internal import array_of

if TYPE_CHECKING:
    from msgspec import msgpack

__all__ = ["check_type", "decode", "decoder", "encode"]

ARRAY = 1
"""The extension of arrays, as in `forebay.rpc`; their bytes are inside."""

ARRAY_BESIDE = 2
"""The extension of arrays whose bytes lie behind the message; see `forebay.executor.wire.parts`."""


SEALED = 9
"""The extension of a secret argument in the store: the server opens it for the worker alone."""


def encode(value: Any) -> bytes:
    """The bytes of an argument map or a result.

    Raises:
        TypeError: it holds what is no data; the message names the type.
        OverflowError: it holds an integer beyond 64 bits.
    """
    return encoder().encode(value)


def decode(blob: Any, type: Any = Any) -> Any:
    """The value of `blob`, as `type` where one is given.

    Args:
        blob: bytes, or another buffer.
        type: an annotation that `check_type` lets pass.

    Raises:
        msgspec.ValidationError: it is of another type; the message says where.
        msgspec.DecodeError: these are no such bytes.
    """
    return decoder(type).decode(blob)


@functools.cache
def encoder() -> msgpack.Encoder:
    """The encoder of this process."""
    from msgspec import msgpack

    return msgpack.Encoder(enc_hook=to_data)


def decoder(type: Any = Any) -> msgpack.Decoder[Any]:
    """The decoder of a type; kept, where the type can be a key."""
    try:
        return _kept_decoder(type)
    except TypeError:  # not hashable, as a Literal of lists
        return _made_decoder(type)


def _made_decoder(type: Any) -> msgpack.Decoder[Any]:
    from msgspec import msgpack

    return msgpack.Decoder(type, ext_hook=_from_extension, dec_hook=_from_data)


_kept_decoder = functools.lru_cache(maxsize=1024)(_made_decoder)


def to_data(value: Any) -> Any:
    """What stands for a value that MessagePack has no form for."""
    if is_array_value(value):
        if type(value).__name__ != "ndarray" and value.ndim == 0:
            return value.item()
        return _array(value)
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} is no data")


def _array(value: Any) -> Any:
    return extension(ARRAY, value, content_of(value))


def is_array_value(value: Any) -> bool:
    """Whether a value is an array, or a scalar of numpy's."""
    return hasattr(value, "__array_interface__") and hasattr(value, "dtype")


def content_of(value: Any) -> memoryview:
    """The bytes of an array, in the order of its elements; its own memory where they lie so.

    Raises:
        TypeError: its elements are no data.
    """
    import numpy

    if value.dtype.hasobject or value.dtype.fields:
        raise TypeError(f"an array of {value.dtype} is no data")
    content: memoryview = numpy.ascontiguousarray(value).reshape(-1).view(numpy.uint8).data
    return content


def extension(code: int, value: Any, content: Any) -> Any:
    """What stands for an array: its dtype, its shape, and its bytes or where they are."""
    from msgspec import msgpack

    return msgpack.Ext(code, msgpack.encode((value.dtype.str, value.shape, content)))


def _from_extension(code: int, payload: memoryview) -> Any:
    """The array of an extension; it owns its memory, or lies in the file that was decoded."""
    if code == ARRAY_BESIDE:
        from forebay.executor.wire.array_layout import array_beside

        return array_beside(payload)
    if code != ARRAY:
        raise ValueError(f"unknown msgpack extension {code}")
    from msgspec import msgpack

    return array_of(*msgpack.decode(payload))


def _from_data(wanted: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know, which is an array."""
    if is_array(wanted) and is_array(type(value)):
        return value
    raise ConfigError(f"expected {wanted}, got {type(value).__qualname__}")
