"""MessagePack in Python alone says what msgspec says."""

from __future__ import annotations

import dataclasses
import enum
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_client.values.messagepack import DEPTH_MAX, Extension, pack, unpack

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=40,
)


def refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is no data")


def kept(code: int, data: memoryview) -> Any:
    return (code, bytes(data))


@given(VALUES)
def test_bytes_are_those_of_msgspec(value: Any) -> None:
    """A server cannot tell which client has written them."""
    assert pack(value, refuse) == msgspec.msgpack.encode(value)


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    """Also what msgspec has written."""
    assert unpack(msgspec.msgpack.encode(value), kept) == value


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
def test_every_form_of_a_length_is_read(size: int) -> None:
    """Each has a code of its own."""
    for value in ("x" * size, b"x" * size, [1] * size, {str(at): at for at in range(size)}):
        data = pack(value, refuse)
        assert data == msgspec.msgpack.encode(value)
        assert unpack(data, kept) == value


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8, 16, 17, 300, 70_000])
def test_extensions_are_kept_with_their_number(size: int) -> None:
    """Arrays travel in them."""
    data = pack(Extension(5, b"y" * size), refuse)
    assert data == msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"y" * size))
    assert unpack(data, kept) == (5, b"y" * size)


@given(st.binary(max_size=64))
@settings(max_examples=500)
def test_what_is_no_messagepack_is_a_value_error(data: bytes) -> None:
    """Whoever sends nonsense is told so, and nothing is allocated by its word."""
    try:
        unpack(data, kept)
    except ValueError:
        return


def test_depth_and_what_follows_are_bounded() -> None:
    """A deep value would end in a RecursionError far away."""
    with pytest.raises(ValueError, match="nested more than"):
        unpack(b"\x91" * (DEPTH_MAX + 2) + b"\x01", kept)
    deep: list[Any] = []
    for _ in range(DEPTH_MAX + 2):
        deep = [deep]
    with pytest.raises(ValueError, match="nested more than"):
        pack(deep, refuse)
    with pytest.raises(ValueError, match="1 bytes follow"):
        unpack(b"\x01\x01", kept)


def test_a_number_beyond_64_bits_and_other_types_are_refused() -> None:
    """The server has no place for them."""
    with pytest.raises(OverflowError, match="64 bits"):
        pack(2**64, refuse)
    with pytest.raises(TypeError, match="object is no data"):
        pack(object(), refuse)


class Mode(enum.Enum):
    SLOW = "slow"


@dataclasses.dataclass
class Point:
    x: float
    at: datetime


def test_further_types_travel_as_those_of_msgspec() -> None:
    """A program need not know which of the two writes."""
    value = {"mode": Mode.SLOW, "point": Point(1.5, datetime(2026, 1, 2, 3)), "set": (1, 2)}
    assert pack(value, refuse) == msgspec.msgpack.encode(value)
    assert math.isnan(unpack(pack(math.nan, refuse), kept))
