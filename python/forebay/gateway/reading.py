"""The two forms of a body, JSON and MessagePack, read value by value where they lie.

Each value comes out in MessagePack. What cannot be read, or is not what its place asks for, is a
problem that names the value by its path.
"""

from __future__ import annotations

import binascii
import functools
import re
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import json, msgpack

from forebay.executor._internal import ARRAY
from forebay.gateway.amount import LEVELS_MAX, check_amount
from forebay.gateway.arrays import Array, fault_of
from forebay.gateway.media import JSON, MSGPACK
from forebay.gateway.msgpack_heads import bin_head, bin_start, is_extension, is_map
from forebay.gateway.problems import Problem, invalid

__all__ = ["FORMATS", "Body", "Buffer", "Format", "array_form", "read_as"]

Buffer = bytes | memoryview | msgspec.Raw
Body = bytes | bytearray | memoryview | msgspec.Raw
Value = TypeVar("Value")
Members = dict[Any, msgspec.Raw]
"""By key, which is text in JSON."""

ARRAY_ALLOWED: Final = 'an array as {"dtype", "shape", "data"}'
_SHOWN_BYTES: Final = 60

BODY: Final = "body"
"""What a body as a whole is called in problems, whose fields are called by their names alone."""

_AT: Final = re.compile(r" - at `(?:key` in `)?\$([^`]*)`$")
"""How msgspec ends a message where the fault is within a value; it does not tell keys of maps."""
_FIELD: Final = re.compile(r"(missing required|contains unknown) field `([^`]*)`")
_EXPECTED: Final = re.compile(r"Expected (.*), got (.*)")
_UNREADABLE: Final = (ValueError, OverflowError, RecursionError)
"""What decoders and encoders raise; the errors of msgspec and of UTF-8 are the first."""


class ArrayFields(msgspec.Struct, forbid_unknown_fields=True):
    """An array in a body; `data` is text in base64 in JSON, and bytes in MessagePack."""

    dtype: str
    shape: list[int]
    data: msgspec.Raw


class _Refused(Exception):
    """An extension that no argument may have: what is allowed, and what came."""


class Format(Protocol):
    """What a body is written in. Methods get a value, and its path for the problems they raise."""

    def unmarked(self, body: Body) -> bytes | None:
        """The arguments of a request without marks; None where something is wrong with them."""

    def members(self, value: Body, path: str) -> Members:
        """The values of a map by their keys."""

    def elements(self, value: Body, path: str) -> list[msgspec.Raw]:
        """The values of a list."""

    def plain(self, value: Body, path: str) -> Buffer:
        """A value whose schema has no mark, in MessagePack."""

    def kind(self, value: Body) -> str:
        """What a value is: "map", "list", "text", "bytes", "extension" or "other"."""

    def put_bytes(self, value: Body, path: str, out: list[Buffer]) -> None:
        """Add bytes to `out`, in MessagePack."""

    def array(self, value: Body, path: str) -> Array | None:
        """An array that is a map; None where it is the extension itself."""


class _Json:
    """JSON, in which bytes are base64."""

    _map = json.Decoder(dict[str, Any])
    _members = json.Decoder(dict[str, msgspec.Raw])
    _elements = json.Decoder(list[msgspec.Raw])
    _any = json.Decoder()
    _text = json.Decoder(str)
    _array = json.Decoder(ArrayFields)
    _encode = msgpack.Encoder().encode

    def unmarked(self, body: Body) -> bytes | None:
        """As of `Format`."""
        try:
            return self._encode(self._map.decode(body))
        except _UNREADABLE:
            return None

    def members(self, value: Body, path: str) -> Members:
        """As of `Format`."""
        return _decoded(self._members, value, path)

    def elements(self, value: Body, path: str) -> list[msgspec.Raw]:
        """As of `Format`."""
        return _decoded(self._elements, value, path)

    def plain(self, value: Body, path: str) -> Buffer:
        """As of `Format`."""
        told = _decoded(self._any, value, path)
        try:
            return self._encode(told)
        except _UNREADABLE as error:
            raise _problem(_too_long(told, path), error, 0) from None

    def kind(self, value: Body) -> str:
        """As of `Format`."""
        return {0x22: "text", 0x7B: "map", 0x5B: "list"}.get(memoryview(value)[0], "other")

    def put_bytes(self, value: Body, path: str, out: list[Buffer]) -> None:
        """As of `Format`."""
        content = self._content(value, path)
        out += bin_head(len(content)), content

    def array(self, value: Body, path: str) -> Array | None:
        """As of `Format`."""
        if self.kind(value) != "map":
            raise invalid(path, ARRAY_ALLOWED, _shown(value))
        fields: ArrayFields = _decoded(self._array, value, path)
        return Array(fields.dtype, fields.shape, self._content(fields.data, f"{path}.data"))

    def _content(self, value: Body, path: str) -> bytes:
        if self.kind(value) != "text":
            raise invalid(path, "bytes as text in base64", _shown(value))
        text: Any = memoryview(value)[1:-1]
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            pass  # unless an escape is in it, as some write slashes
        text = _decoded(self._text, value, path)
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except ValueError as error:  # binascii.Error, or a letter that no ASCII is
            raise invalid(path, f"bytes as text in base64 ({error})", _shown(value)) from None


class _Msgpack:
    """MessagePack, in which bytes are bytes, and an array may be the extension already."""

    def __init__(self) -> None:
        self._map = msgpack.Decoder(dict[str, Any], ext_hook=_check_extension)
        self._members = msgpack.Decoder(Members)
        self._elements = msgpack.Decoder(list[msgspec.Raw])
        self._any = msgpack.Decoder(ext_hook=_check_extension)
        self._array = msgpack.Decoder(ArrayFields)

    def unmarked(self, body: Body) -> bytes | None:
        """As of `Format`."""
        try:
            self._map.decode(body)
        except (*_UNREADABLE, _Refused):
            return None
        return body if isinstance(body, bytes) else bytes(body)

    def members(self, value: Body, path: str) -> Members:
        """As of `Format`."""
        return _decoded(self._members, value, path)

    def elements(self, value: Body, path: str) -> list[msgspec.Raw]:
        """As of `Format`."""
        return _decoded(self._elements, value, path)

    def plain(self, value: Body, path: str) -> Buffer:
        """As of `Format`."""
        if bin_start(memoryview(value)) is None:  # which would be copied, and is anything
            _decoded(self._any, value, path)
        return value if not isinstance(value, bytearray) else bytes(value)

    def kind(self, value: Body) -> str:
        """As of `Format`."""
        first = memoryview(value)[0]
        if is_map(first):
            return "map"
        if 0x90 <= first < 0xA0 or first in (0xDC, 0xDD):
            return "list"
        if 0xA0 <= first < 0xC0 or first in (0xD9, 0xDA, 0xDB):
            return "text"
        if is_extension(first):
            return "extension"
        return "bytes" if first in (0xC4, 0xC5, 0xC6) else "other"

    def put_bytes(self, value: Body, path: str, out: list[Buffer]) -> None:
        """As of `Format`."""
        out.append(self.plain(value, path))  # the server tells who sends something else

    def array(self, value: Body, path: str) -> Array | None:
        """As of `Format`."""
        kind = self.kind(value)
        if kind == "extension":
            return None
        if kind != "map":
            raise invalid(path, f"{ARRAY_ALLOWED}, or extension {ARRAY}", f"a value ({kind})")
        fields: ArrayFields = _decoded(self._array, value, path)
        data = memoryview(fields.data)
        start = bin_start(data)
        if start is None:
            raise invalid(f"{path}.data", "bytes", f"a value ({self.kind(data)})")
        return Array(fields.dtype, fields.shape, data[start:])


def read_as(type_: type[Value], body: Body, form: str = JSON) -> Value:
    """A body that is the same for all applications, as a type of msgspec.

    Raises:
        Problem: it cannot be read, or is something else; the field is named.
    """
    if not isinstance(body, msgspec.Raw):  # a part of a body, which was looked at
        check_amount(body, form, BODY)
    wanted: Any = type_  # a type is a key, which mypy does not see
    decoder: json.Decoder[Value] = _decoder_of(wanted, form)
    return _decoded(decoder, body, "")


def array_form(format_: Format, value: Body, path: str) -> Array | None:
    """A checked array of a body; None where it is the extension itself, to be taken as it is.

    Raises:
        Problem: it is no array, or its fields do not fit together.
    """
    array = format_.array(value, path)
    if array is None:
        return None
    fault = fault_of(array.dtype, array.shape, len(array.content))
    if fault is not None:
        field, allowed, came = fault
        raise invalid(f"{path}.{field}", allowed, came)
    return array


def _check_extension(code: int, payload: memoryview) -> None:
    """Refuse an extension that is no array. The worker makes the array; nobody here needs it."""
    if code != ARRAY:
        raise _Refused("", f"no extension but {ARRAY}, an array, and -1, a time", f"{code}")
    try:
        dtype, shape, content = _EXTENSION.decode(payload)
    except _UNREADABLE:
        raise _Refused("", "an array as [dtype, shape, bytes]", "another extension") from None
    fault = fault_of(dtype, shape, len(content))
    if fault is not None:
        raise _Refused(f".{fault[0]}", *fault[1:])


_EXTENSION: Final = msgpack.Decoder(tuple[str, list[int], memoryview])


@functools.cache
def _decoder_of(type_: type[Any], form: str) -> Any:
    return json.Decoder(type_) if form == JSON else msgpack.Decoder(type_)


def _decoded(
    decoder: json.Decoder[Value] | msgpack.Decoder[Value], value: Body, path: str
) -> Value:
    try:
        return decoder.decode(value)
    except _Refused as refused:
        field, allowed, came = refused.args
        raise invalid(f"{path}{field}", allowed, came) from None
    except _UNREADABLE as error:
        raise _problem(path, error, len(memoryview(value)), decoder) from None


def _problem(path: str, error: Exception, size: int, decoder: Any = None) -> Problem:
    """The problem of a value of so many bytes that cannot be read by this decoder."""
    if isinstance(error, RecursionError):
        return invalid(path or BODY, f"at most {LEVELS_MAX} levels", "a deeper value")
    if isinstance(error, OverflowError):
        return invalid(path, "integers of 64 bits", "a longer one")
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return _not_of_type(path, text, getattr(decoder, "type", None))
    if isinstance(error, UnicodeDecodeError):
        text = f"a text is not UTF-8 at its byte {error.start}"
    elif "byte" not in text:
        text += f" (byte {size})"  # it ends too early
    path = path or BODY
    form = "MessagePack" if isinstance(decoder, msgpack.Decoder) else "JSON"
    return Problem(400, "malformed", f"{path}: {text}", object=path, next=f"send {form}")


def _not_of_type(path: str, text: str, type_: Any) -> Problem:
    """The problem of a value that can be read and is not of its type, by the text of msgspec."""
    where = _AT.search(text)
    if where:
        path, text = path + where[1], text[: where.start()]
    if field := _FIELD.search(text):
        path = f"{path}.{field[2]}".lstrip(".")
        message = f"{path}: " + (
            "there is no such field" if "unknown" in field[1] else "the field is missing"
        )
        names = ", ".join(getattr(type_, "__struct_fields__", ()))
        return Problem(
            422, "invalid", message, object=path, limit=names, next=f"the fields are {names}"
        )
    path = path.lstrip(".") or BODY
    if kinds := _EXPECTED.fullmatch(text):
        return invalid(path, kinds[1], kinds[2])
    return Problem(422, "invalid", f"{path}: {text}", object=path)


def _too_long(value: Any, path: str) -> str:
    """Where an integer is that has no form in MessagePack."""
    members = value.items() if isinstance(value, dict) else ()
    inside = [(f"{path}.{key}", one) for key, one in members]
    if isinstance(value, list):
        inside = [(f"{path}[{number}]", one) for number, one in enumerate(value)]
    for deeper, one in inside:
        if isinstance(one, dict | list):
            found = _too_long(one, deeper)
            if found != deeper:
                return found
        elif isinstance(one, int) and not -(2**63) <= one < 2**64:
            return deeper
    return path


def _shown(value: Body) -> str:
    """A value in JSON, cut where it is long."""
    view = memoryview(value)
    text = bytes(view[:_SHOWN_BYTES]).decode("utf-8", "replace")
    return text if len(view) <= _SHOWN_BYTES else f"{text}... ({len(view)} bytes)"


FORMATS: Final[dict[str, Format]] = {JSON: _Json(), MSGPACK: _Msgpack()}
