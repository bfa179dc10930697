"""Arguments and results as bytes, and back as what the annotation says."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import tracemalloc
import uuid
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.executor.wire import parts
from forebay.executor.wire.codec import decode, encode
from tests.mutation import Input, drive


@dataclasses.dataclass
class Point:
    x: int
    label: bytes = b""


class Job(msgspec.Struct):
    points: list[Point]
    at: datetime.datetime


class Colour(enum.Enum):
    RED = "red"


NOW = datetime.datetime(2026, 11, 21, 21, 0, tzinfo=datetime.UTC)

data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(data)
def test_data_comes_back_as_it_was(value: Any):
    """JSON types and bytes need no annotation."""
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (Point(1, b"\xff"), Point),
        (Job([Point(1)], NOW), Job),
        ({1: "one"}, dict[int, str]),
        ({"a", "b"}, set[str]),
        ((1, "a"), tuple[int, str]),
        (NOW, datetime.datetime),
        (datetime.datetime(2026, 1, 2), datetime.datetime),
        (datetime.timedelta(minutes=3), datetime.timedelta),
        (uuid.UUID(int=7), uuid.UUID),
        (Colour.RED, Colour),
        (bytearray(b"ab"), bytearray),
    ],
)
def test_annotation_gives_the_type_back(value: Any, type: Any):
    """A function gets what it declares, not what it looks like in MessagePack."""
    back = decode(encode(value), type)
    assert back == value
    assert back.__class__ is value.__class__


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.array(3.5),
        np.zeros((0, 5), np.int8),
        np.arange(10)[::2],
        np.array(["2026-01-01"], "datetime64[D]"),
        np.array([True, False]),
        np.zeros(200_000),
    ],
)
def test_array_comes_back_with_dtype_and_shape(array: Any):
    """Any size travels inline, and what comes is writable memory of its own."""
    for type in (Any, np.ndarray, np.ndarray | None):
        back = decode(encode(array), type)
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert np.array_equal(back, array)
        assert back.flags.writeable


def test_array_within_data():
    """Arrays stand wherever a value may stand."""
    back = decode(encode({"image": [np.ones(2)]}))
    assert back["image"][0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("value", [np.int64(3), np.float64(2.5), np.bool_(True)])
def test_numpy_scalar_is_the_number_that_it_is(value: Any):
    """`return matrix.max()` is a float, as the author sees it."""
    assert decode(encode(value)) == value.item()
    assert type(decode(encode(value))) is type(value.item())


def test_int_parameter_gets_an_int():
    """A caller's text does not become somebody else's crash."""
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        decode(encode("3"), int)
    assert type(decode(encode(3), float)) is float


@pytest.mark.parametrize("value", [object(), lambda: 1, 1j, np.array([object()])])
def test_what_is_no_data_is_named(value: Any):
    """The error says which type it was."""
    with pytest.raises(TypeError, match="is no data"):
        encode({"deep": [value]})


def extension(*fields: Any, code: int = 1) -> bytes:
    """An array's extension as a hostile peer writes it."""
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(code, msgspec.msgpack.encode(fields)))


@pytest.mark.parametrize("dtype", ["u1", "<f8"])
def test_a_size_in_the_place_of_content_allocates_nothing(dtype: str):
    """A few bytes from another program must not fill the memory of the one that reads them."""
    size = 1 << 30
    blob = extension(dtype, [size // np.dtype(dtype).itemsize], size)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="content of an array is int, not bytes"):
            decode(blob)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", ["O", "u1,u1", "(1000,)u1", "[" * 9_000, None, ["u1"]])
def test_elements_that_are_no_data_are_refused_when_read(dtype: Any):
    """Only the names that the encoder writes are taken: numpy evaluates others as Python."""
    with pytest.raises(ValueError, match="is no data"):
        decode(extension(dtype, [1], bytes(8)))


def results() -> list[Input]:
    """Results with arrays inside and beside, and hostile ones."""
    values = [{"a": [1, {}, b"x"], "b": np.arange(6).reshape(2, 3)}, np.zeros(1 << 14), NOW, [[[]]]]
    made = [b"".join(parts.Encoder().encode(value)) for value in values]
    big = 1 << 28
    made += [extension("u1", [big], big), extension("u1", [big], -big, code=2)]
    for shape, begins in [([big], 1 << 63), ([1 << 63], 0), ([-1], 0)]:
        head = extension("<f8", shape, begins, code=2)
        made.append(b"\xc1fb1" + len(head).to_bytes(8, "little") + head + bytes(64))
    made.append(b"\xc1fb1" + (1 << 40).to_bytes(8, "little") + bytes(64))
    return [(blob, []) for blob in made]


def test_mutated_results_end_in_a_value_or_a_refusal_within_their_size():
    """Whatever bytes come, the decoder says no or gives a value, and allocates by what came."""
    drive(lambda blob, _: parts.decode(blob), results())
