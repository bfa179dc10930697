"""Arguments and results: MessagePack, by msgspec where that is installed.

JSON has no form for bytes, times and arrays, and text that is bytes could not be told from text. An
array is an extension of its dtype, shape and bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from forebay_client.errors import ConfigError, Error, ProtocolError, remote_error
from forebay_client.values.array import Array, array_of, content_of, is_array
from forebay_client.values.messagepack import LIST, MAP, Extension, pack, put_head, unpack

__all__ = ["MEDIA", "decode", "encode", "encode_map"]

MEDIA: Final = "application/msgpack"

ARRAY: Final = 1
"""The extension of arrays, as in the server's own wire."""


def encode(value: Any, what: str) -> bytes:
    """The bytes of arguments.

    Args:
        value: a map.
        what: whose they are, for messages.

    Raises:
        ConfigError: it holds what does not travel.
    """
    try:
        return _packer()(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"{what}: {error}") from error


def encode_map(values: dict[str, Any], encoded: dict[str, bytes | list[bytes]]) -> bytes:
    """The bytes of a map, some of whose values, or the elements of which, are bytes already."""
    out = bytearray()
    put_head(MAP, len(values) + len(encoded), out)
    for name, value in values.items():
        out += _packer()(name) + _packer()(value)
    for name, given in encoded.items():
        out += _packer()(name)
        if isinstance(given, list):
            put_head(LIST, len(given), out)
            out += b"".join(given)
        else:
            out += given
    return bytes(out)


def decode(data: Any, type: Any, what: str) -> Any:
    """The value of a result.

    Args:
        data: a buffer.
        type: an annotation as which it is decoded where msgspec is installed; Any: as it came.
        what: whose it is, for messages.

    Raises:
        ProtocolError: these are no such bytes.
        RemoteError: it is not what the annotation says; also a TypeError.
    """
    try:
        return _unpacker()(data, type)
    except Error:
        raise
    except ValueError as error:  # msgspec's errors are ValueErrors too
        if type is not Any and _is_mismatch(error):
            told = f"{what} returned what its annotation does not say: {error}"
            text = f"{told}; correct the annotation, or the value"
            raise remote_error("TypeError", "TypeError", text, "") from None
        raise ProtocolError(f"the result of {what} cannot be read: {error}") from error


def _from_extension(code: int, payload: Any) -> Any:
    """The array of an extension."""
    if code != ARRAY:
        raise ValueError(f"unknown extension {code}")
    parts = unpack(payload, _no_extension)
    if not isinstance(parts, list) or len(parts) != 3 or not isinstance(parts[2], bytes):
        raise ValueError("an array has a dtype, a shape and bytes")
    return array_of(*parts)


def _no_extension(code: int, payload: Any) -> Any:
    raise ValueError(f"extension {code} within an array")


def _to_data(value: Any) -> Any:
    """What stands for a value that MessagePack has no form for."""
    if not is_array(value):
        raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} is no data")
    if not isinstance(value, Array) and type(value).__name__ != "ndarray" and value.ndim == 0:
        return value.item()
    dtype, shape, content = content_of(value)
    return Extension(ARRAY, pack([dtype, shape, content], _to_data))


def _is_mismatch(error: ValueError) -> bool:
    import msgspec

    return isinstance(error, msgspec.ValidationError)


@functools.cache
def _packer() -> Callable[[Any], bytes]:
    try:
        from msgspec import msgpack
    except ImportError:
        return functools.partial(pack, other=_to_data)

    def to_data(value: Any) -> Any:
        data = _to_data(value)
        return msgpack.Ext(data.code, data.data) if isinstance(data, Extension) else data

    return msgpack.Encoder(enc_hook=to_data).encode


@functools.cache
def _unpacker() -> Callable[[Any, Any], Any]:
    try:
        from msgspec import msgpack
    except ImportError:
        return lambda data, type: unpack(data, _from_extension)
    return lambda data, type: msgpack.decode(
        data, type=type, ext_hook=_from_extension, dec_hook=_as_it_is
    )


def _as_it_is(wanted: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know, which is an array."""
    if is_array(value):
        return value
    raise ConfigError(f"expected {wanted}, got {type(value).__qualname__}")
