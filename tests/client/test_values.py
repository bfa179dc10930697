"""Arguments and results, with numpy and msgspec and without them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy
import pytest

from forebay.executor._internal import decode as decode_there
from forebay.executor._internal import encode as encode_there
from forebay_client import Array, errors
from forebay_client.values import codec

VALUE = {
    "bytes": b"\x00\xff",
    "at": datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
    "nested": [{"a": None}, [True, 1.5, -(2**63), 2**64 - 1]],
    7: "number",
}


@pytest.fixture(params=["msgspec", "alone"])
def codecs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With msgspec and numpy, and where neither is installed."""
    if request.param == "alone":
        found = builtins.__import__

        def without(name: str, *args: Any, **kwargs: Any) -> Any:
            importer = (args[0] or {}).get("__name__", "") if args else ""
            if name in ("numpy", "msgspec") and importer.startswith("forebay_client"):
                raise ImportError(name)
            return found(name, *args, **kwargs)

        monkeypatch.setattr(builtins, "__import__", without)
    codec._packer.cache_clear()
    codec._unpacker.cache_clear()
    yield request.param
    codec._packer.cache_clear()
    codec._unpacker.cache_clear()


def test_the_server_reads_what_is_written_and_the_other_way_round(codecs: str) -> None:
    """Bytes stay bytes, times stay times."""
    assert decode_there(codec.encode(VALUE, "x")) == VALUE
    assert codec.decode(encode_there(VALUE), Any, "x") == VALUE


@pytest.mark.parametrize("dtype", ["<f8", ">i2", "|b1", "<U3", "<M8[s]", "<c8", "|V2"])
def test_arrays_travel(codecs: str, dtype: str) -> None:
    """As numpy's where there is numpy, else as what they are made of."""
    array = numpy.arange(6).astype("<i8").astype(dtype if dtype[1] != "V" else "|S2")
    array = array.astype(dtype).reshape(2, 3)
    blob = encode_there({"a": array})
    back = codec.decode(blob, Any, "x")["a"]
    assert isinstance(back, Array) == (codecs == "alone")
    assert numpy.array_equal(numpy.asarray(back), array)
    assert codec.encode({"a": back}, "x") == blob


def test_an_array_without_numpy_has_its_numbers() -> None:
    """For programs that want a few of them."""
    array = Array("<i4", (2, 2), numpy.arange(4, dtype="<i4").tobytes())
    assert array.tolist() == [[0, 1], [2, 3]]
    assert array == Array("<i4", (2, 2), bytes(array.data))
    assert repr(array) == "<Array <i4 (2, 2)>"
    assert Array(">f2", (), b"\x3c\x00").tolist() == 1.0
    with pytest.raises(ValueError, match="no numbers of Python"):
        Array("<U1", (1,), b"a\0\0\0").tolist()


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [("O", (1,), b"12345678"), ("<f8", (2,), b"1234"), ("<f8", (-1,), b""), ("<f8", (True,), b"")],
)
def test_what_is_no_array_is_refused(dtype: str, shape: Any, data: bytes) -> None:
    """Objects are no data, and a length that does not fit would read beyond it."""
    with pytest.raises(ValueError, match=r"no dtype|no shape|are no array"):
        Array(dtype, shape, data)


def test_what_does_not_travel_is_refused_with_its_request(codecs: str) -> None:
    """Before anything is sent."""
    for value in (object(), 2**64, numpy.array([object()])):
        with pytest.raises(errors.ConfigError, match="request 'x'"):
            codec.encode({"a": value}, "request 'x'")


def test_bytes_that_are_no_result_are_the_peers_fault(codecs: str) -> None:
    """An unknown extension, nonsense, an array that lies."""
    lies = msgspec.msgpack.Ext(1, msgspec.msgpack.encode(["<f8", [5], b"x"]))
    for value in (msgspec.msgpack.Ext(9, b""), lies, msgspec.msgpack.Ext(1, b"\xc0")):
        with pytest.raises(errors.ProtocolError, match="cannot be read"):
            codec.decode(msgspec.msgpack.encode(value), Any, "x")
    with pytest.raises(errors.ProtocolError, match="cannot be read"):
        codec.decode(b"\xc1", Any, "x")


def test_a_result_is_what_its_annotation_says() -> None:
    """Where msgspec is installed, as of the other client."""
    codec._unpacker.cache_clear()
    assert codec.decode(encode_there([1, 2]), tuple[int, int], "x") == (1, 2)
    with pytest.raises(TypeError, match="what its annotation does not say"):
        codec.decode(encode_there("text"), int, "request 'x'")
