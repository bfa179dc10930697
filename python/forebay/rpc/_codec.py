"""The encoding of calls, results or exceptions as bytes.

`pickle` carries anything, with buffers out of band; `msgpack` carries data only.
A message is a head and, where it holds large buffers, segments that are neither copied nor joined.
"""

from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from forebay.errors import ConfigError

__all__ = ["BY_NUMBER", "Codec", "array_of", "by_name", "describe", "dtype_of"]

#: Below this a buffer is cheaper inside the pickle than as a segment of its own.
_PICKLE_SEGMENT_BYTES_MIN = 16 << 10
#: From here on bytes and arrays travel as segments beside msgpack.
_MSGPACK_SEGMENT_BYTES_MIN = 64 << 10

_ARRAY, _ARRAY_SEGMENT, _BYTES_SEGMENT = 1, 2, 3

#: What `dtype.str` is for numbers, text of a fixed length, times and raw bytes.
_DTYPE = re.compile(
    r"[<>|=]?[biufcSUV][0-9]{1,10}|[<>=]?[mM]8(\[([1-9][0-9]{0,9})?[a-zA-Z]{1,7}\])?"
)

Segments = list[Any] | None
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

_dumps, _loads = pickle.dumps, pickle.loads


class Codec(NamedTuple):
    """A way to encode; its `number` is in the flags of each frame."""

    name: str
    number: int
    encode_call: Callable[[str, tuple[Any, ...], dict[str, Any] | None], tuple[bytes, Segments]]
    encode: Callable[[Any], tuple[bytes, Segments]]
    decode: Callable[[Any, Segments], Any]


class _OutOfBand(list[Any]):
    """Collects the large buffers of one pickle."""

    __slots__ = ()

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _PICKLE_SEGMENT_BYTES_MIN:
            return True
        self.append(raw)
        return False


def _pickle_call(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> tuple[bytes, Segments]:
    if not kwargs:
        for value in args:
            if type(value) not in _PLAIN:
                break
        else:
            return _dumps((method, args, None), 5), None
    return _pickle((method, args, kwargs))


def _pickle(value: Any) -> tuple[bytes, Segments]:
    if type(value) in _PLAIN:
        return _dumps(value, 5), None
    buffers = _OutOfBand()
    head = _dumps(value, 5, buffer_callback=buffers.take)
    return head, buffers or None


def _unpickle(head: Any, segments: Segments) -> Any:
    if segments is None:
        return _loads(head)
    return _loads(head, buffers=segments)


class _Data:
    """Encodes one msgpack message that plain msgpack cannot: arrays and large bytes."""

    __slots__ = ("segments",)

    def __init__(self) -> None:
        self.segments: list[Any] = []

    def lift(self, value: Any) -> Any:
        """Replace a large bytes-like by a reference to a segment."""
        if isinstance(value, bytes | bytearray | memoryview):
            view = memoryview(value)
            if view.nbytes >= _MSGPACK_SEGMENT_BYTES_MIN:
                return self._refer(_BYTES_SEGMENT, view.cast("B"), ())
        return value

    def hook(self, value: Any) -> Any:
        if hasattr(value, "__array_interface__") and hasattr(value, "dtype"):
            return self._array(value)
        raise TypeError(f"{type(value).__qualname__} is no data: send it with codec='pickle'")

    def _array(self, value: Any) -> Any:
        import numpy

        array = numpy.ascontiguousarray(value)
        if array.dtype.hasobject or array.dtype.fields:
            raise TypeError(f"an array of {array.dtype} is no data: send it with codec='pickle'")
        described = (array.dtype.str, value.shape)
        view = array.reshape(-1).view(numpy.uint8).data
        if view.nbytes >= _MSGPACK_SEGMENT_BYTES_MIN:
            return self._refer(_ARRAY_SEGMENT, view, described)
        return _ext(_ARRAY, (*described, view))

    def _refer(self, code: int, view: memoryview, described: tuple[Any, ...]) -> Any:
        self.segments.append(view)
        return _ext(code, (*described, len(self.segments) - 1))


def _ext(code: int, fields: tuple[Any, ...]) -> Any:
    from msgspec import msgpack

    return msgpack.Ext(code, msgpack.encode(fields))


def _msgpack_call(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> tuple[bytes, Segments]:
    from msgspec import msgpack

    data = _Data()
    args = tuple(map(data.lift, args))
    kwargs = {name: data.lift(value) for name, value in kwargs.items()} if kwargs else None
    head = msgpack.encode((method, args, kwargs), enc_hook=data.hook)
    return head, data.segments or None


def _msgpack(value: Any) -> tuple[bytes, Segments]:
    from msgspec import msgpack

    data = _Data()
    head = msgpack.encode(data.lift(value), enc_hook=data.hook)
    return head, data.segments or None


def _unmsgpack(head: Any, segments: Segments) -> Any:
    from msgspec import msgpack

    left = list(segments or ())

    def hook(code: int, payload: memoryview) -> Any:
        return _restore(code, msgpack.decode(payload), left)

    return msgpack.decode(head, ext_hook=hook)


def _restore(code: int, fields: list[Any], segments: list[Any]) -> Any:
    if code == _BYTES_SEGMENT:
        (index,) = fields
        return bytes(_take_segment(segments, index))
    if code not in (_ARRAY, _ARRAY_SEGMENT):
        raise ValueError(f"unknown msgpack extension {code}")
    name, shape, content = fields
    if code == _ARRAY_SEGMENT:
        import numpy

        return numpy.frombuffer(_take_segment(segments, content), dtype_of(name)).reshape(shape)
    return array_of(name, shape, content)


def _take_segment(segments: list[Any], index: Any) -> Any:
    """The segment of that index, which a head names once: each time that it did would copy it.

    Raises:
        ValueError: there is no such segment, or it is named twice.
    """
    if type(index) is not int or not 0 <= index < len(segments):
        raise ValueError(f"{index!s:.40} is no segment: {len(segments)} came, counted from 0")
    segment, segments[index] = segments[index], None
    if segment is None:
        raise ValueError(f"segment {index} is named twice")
    return segment


def array_of(name: Any, shape: Any, content: Any) -> Any:
    """The array of these bytes, which owns its memory.

    Raises:
        ValueError, TypeError: they are no bytes, or none of that dtype and shape.
    """
    import numpy

    if type(content) is not bytes:  # bytearray(n) would be n bytes, whatever came
        raise ValueError(f"the content of an array is {type(content).__name__}, not bytes")
    return numpy.frombuffer(bytearray(content), dtype_of(name)).reshape(shape)


def dtype_of(name: Any) -> Any:
    """The dtype of an array that was sent.

    numpy itself reads more than that from a text, some of it by Python's parser, which a long text
    can bring down.

    Raises:
        ValueError: its elements would be no data; TypeError: there is no such dtype.
    """
    import numpy

    if type(name) is not str or not _DTYPE.fullmatch(name):
        raise ValueError(f"an array of {name!s:.40} is no data")
    return numpy.dtype(name)


PICKLE = Codec("pickle", 1, _pickle_call, _pickle, _unpickle)
MSGPACK = Codec("msgpack", 0, _msgpack_call, _msgpack, _unmsgpack)
BY_NUMBER = (MSGPACK, PICKLE)
_NAMES = {"msgpack": MSGPACK, "pickle": PICKLE}


def by_name(name: str) -> Codec:
    """The codec of that name.

    Raises:
        ConfigError: there is no such codec.
    """
    try:
        return _NAMES[name]
    except KeyError:
        raise ConfigError(f"codec {name!r} is unknown; choose one of {sorted(_NAMES)}") from None


def describe(error: BaseException) -> tuple[str, str, str, str]:
    """What `errors.remote_error` needs to rebuild an exception elsewhere."""
    cls = type(error)
    builtin = next(base.__name__ for base in cls.__mro__ if base.__module__ == "builtins")
    name = (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
    try:
        message = str(error)
    except Exception as broken:
        message = f"<its text is not available: {type(broken).__name__}>"
    own = error.__traceback__  # its first frame is ours
    text = "".join(traceback.format_exception(cls, error, own and own.tb_next))
    return builtin, name, message, text
