"""The results of requests in the forms that clients accept.

A result is MessagePack, or MessagePack with its large arrays beside it, as the executor's wire has
it (`forebay.executor.wire.parts`). Its content is not copied where its form permits: bytes, an
array and MessagePack itself are views of the memory in which the result lies, which may be a mapped
file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import json, msgpack

from forebay.executor._internal import ARRAY, ARRAY_BESIDE, MAGIC, START, head_bytes, padding
from forebay.gateway.amount import VALUES_MAX, has_more_values
from forebay.gateway.arrays import Array, fault_of, npy_head, size_of
from forebay.gateway.media import BYTES, JSON, MSGPACK, NPY, choose
from forebay.gateway.msgpack_heads import (
    array_extension_head,
    bin_start,
    ext_start,
    is_extension,
)

__all__ = ["JSON_RESULT_BYTES_MAX", "Result", "result_out"]

JSON_RESULT_BYTES_MAX: Final = 64 << 20
"""A longer result has no form in JSON: its text would be made whole in the gateway's memory."""

_MARKER_BYTES: Final = 16
_UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
"""What decoders and encoders raise of a value that they have no form for."""

_INSIDE: Final = msgpack.Decoder(tuple[str, list[int], memoryview])
_BESIDE: Final = msgpack.Decoder(tuple[str, list[int], int])
"""The payload of an array's extension: where its bytes are, or where they begin."""


class Result(NamedTuple):
    """A result as it is sent.

    Attributes:
        media_type: its form.
        parts: one behind the other; views of the result that was given, where they are not made.
        ranged: whether a part of it means something by itself.
    """

    media_type: str
    parts: list[bytes | memoryview]
    ranged: bool

    @property
    def length(self) -> int:
        """In bytes."""
        return sum(len(part) for part in self.parts)


def result_out(
    blob: Any, accept: str | None = None, admit: Callable[[], None] | None = None
) -> Result:
    """A result in the form that a client accepts best; JSON where it says nothing.

    Args:
        blob: a buffer of bytes, as the server gave it or as it lies in its file.
        accept: the header.
        admit: called before a text in JSON is made; it may raise a problem instead.

    Raises:
        Problem: 406 with the forms that there are.
    """
    value = _Value(memoryview(blob).cast("B"))
    forms, reason = value.forms(), ""
    while True:
        form = choose(accept, forms, reason)
        if form == JSON and admit is not None:
            admit()
        try:
            return value.result(form)
        except _NoForm as error:  # JSON has no form for some values
            forms.remove(form)
            reason = str(error)


class _NoForm(Exception):
    """What a value holds that a form has no place for."""


class _Fields(msgspec.Struct):
    """An array in JSON, in which its data becomes base64."""

    dtype: str
    shape: list[int]
    data: memoryview


class _Held:
    """Holds the place of an array in a tree of values; no type that an encoder knows."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array


class _Value:
    """A result, and what it is as a whole."""

    def __init__(self, whole: memoryview) -> None:
        self._whole = whole
        self._beside = 0
        self._head = whole
        if whole[:1] == MAGIC[:1]:
            end = START.size + head_bytes(whole)
            self._beside = end + len(padding(end))
            self._head = whole[START.size : end]
        self._array = self._root_array()
        self._bytes = self._root_bytes()

    def forms(self) -> list[str]:
        """The media types that there are, the default first."""
        forms = [JSON, MSGPACK]
        if self._array is not None:
            return [*forms, BYTES, NPY]
        return forms if self._bytes is None else [*forms, BYTES]

    def result(self, form: str) -> Result:
        """In one of its forms.

        Raises:
            _NoForm: it has none of them after all.
        """
        try:
            if form == JSON:
                return Result(JSON, [self._json()], ranged=False)
            if form == MSGPACK:
                return Result(MSGPACK, self._inline(), ranged=False)
        except _UNREADABLE as error:
            raise _NoForm(f"{form} has no form for it ({error}); ") from None
        if self._array is None:
            assert self._bytes is not None  # the form is offered for bytes and arrays alone
            return Result(BYTES, [self._bytes], ranged=True)
        dtype, shape, content = self._array
        head = [npy_head(dtype, shape)] if form == NPY else []
        return Result(form, [*head, content], ranged=True)

    def _root_array(self) -> Array | None:
        if not len(self._head) or not is_extension(self._head[0]):
            return None
        code, start = ext_start(self._head)
        try:
            return self._array_of(code, self._head[start:])
        except ValueError:
            return None

    def _root_bytes(self) -> memoryview | None:
        start = bin_start(self._head) if len(self._head) else None
        return None if start is None else self._head[start:]

    def _array_of(self, code: int, payload: memoryview) -> Array:
        """The array of an extension.

        Raises:
            ValueError: it is none.
        """
        if code == ARRAY:
            dtype, shape, content = _INSIDE.decode(payload)
        elif code == ARRAY_BESIDE and self._beside:
            dtype, shape, begins = _BESIDE.decode(payload)
            start = self._beside + begins
            content = self._whole[start : start + size_of(dtype, shape)]
        else:
            raise ValueError(f"extension {code} of MessagePack")
        fault = fault_of(dtype, shape, len(content))
        if fault is not None:
            field, _, came = fault
            raise ValueError(f"an array whose {field} is {came}")
        return Array(dtype, shape, content)

    def _json(self) -> bytes:
        if len(self._whole) > JSON_RESULT_BYTES_MAX:
            raise ValueError(f"json_result_bytes_max is {JSON_RESULT_BYTES_MAX}")
        if self._bytes is not None:
            return json.encode(self._bytes)
        if has_more_values(self._head):
            raise ValueError(f"values_max is {VALUES_MAX}")
        return json.encode(msgpack.Decoder(ext_hook=self._fields).decode(self._head))

    def _fields(self, code: int, payload: memoryview) -> _Fields:
        return _Fields(*self._array_of(code, payload))

    def _inline(self) -> list[bytes | memoryview]:
        """MessagePack, with the arrays that lie beside it in their places."""
        if not self._beside:
            return [self._whole]
        if self._array is not None:
            dtype, shape, content = self._array
            return [array_extension_head(ARRAY, dtype, shape, len(content)), content]
        return self._spliced(msgpack.Decoder(ext_hook=self._hold).decode(self._head))

    def _hold(self, code: int, payload: memoryview) -> Any:
        if code in (ARRAY, ARRAY_BESIDE):
            return _Held(self._array_of(code, payload))
        return msgpack.Ext(code, bytes(payload))

    def _spliced(self, tree: Any) -> list[bytes | memoryview]:
        """Encode a tree with a marker for the content of each array, and put the contents there.

        The marker is random and made afterwards, so that no content holds it.
        """
        marker = os.urandom(_MARKER_BYTES)
        contents: list[memoryview] = []

        def place(held: Any) -> msgspec.Raw:
            dtype, shape, content = held.array
            contents.append(content)
            return msgspec.Raw(array_extension_head(ARRAY, dtype, shape, len(content)) + marker)

        first, *others = msgpack.Encoder(enc_hook=place).encode(tree).split(marker)
        parts: list[bytes | memoryview] = [first]
        for content, behind in zip(contents, others, strict=True):
            parts += content, behind
        return parts
