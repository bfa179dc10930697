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
from forebay.executor._types import check_type, is_array

if TYPE_CHECKING:
    from msgspec import msgpack

__all__ = ["check_type", "decode", "decoder", "encode"]

ARRAY = 1
"""The extension of arrays, as in `forebay.rpc`; always inline."""


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

    return msgpack.Encoder(enc_hook=_to_data)


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


def _to_data(value: Any) -> Any:
    """What stands for a value that MessagePack has no form for."""
    if hasattr(value, "__array_interface__") and hasattr(value, "dtype"):
        if type(value).__name__ != "ndarray" and value.ndim == 0:
            return value.item()
        return _array(value)
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} is no data")


def _array(value: Any) -> Any:
    import numpy
    from msgspec import msgpack

    if value.dtype.hasobject or value.dtype.fields:
        raise TypeError(f"an array of {value.dtype} is no data")
    array = numpy.ascontiguousarray(value)
    content = array.reshape(-1).view(numpy.uint8).data
    return msgpack.Ext(ARRAY, msgpack.encode((array.dtype.str, value.shape, content)))


def _from_extension(code: int, payload: memoryview) -> Any:
    """The array of an extension; it owns its memory."""
    if code != ARRAY:
        raise ValueError(f"unknown msgpack extension {code}")
    import numpy
    from msgspec import msgpack

    name, shape, content = msgpack.decode(payload)
    dtype = numpy.dtype(name)
    if dtype.hasobject or dtype.fields:
        raise ValueError(f"an array of {dtype} is no data")
    return numpy.frombuffer(bytearray(content), dtype).reshape(shape)


def _from_data(wanted: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know, which is an array."""
    if is_array(wanted) and is_array(type(value)):
        return value
    raise ConfigError(f"expected {wanted}, got {type(value).__qualname__}")
