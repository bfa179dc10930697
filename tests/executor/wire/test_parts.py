"""Values whose arrays lie beside them, as results lie in files."""

from __future__ import annotations

import dataclasses
import mmap
import tempfile
from typing import Any

import numpy as np
import pytest

from forebay.executor.wire import codec
from forebay.executor.wire.array_layout import ALIGNMENT
from forebay.executor.wire.parts import Encoder, decode

LARGE = 20_000


@dataclasses.dataclass
class Picture:
    name: str
    pixels: np.ndarray
    mask: np.ndarray | None = None


def joined(value: Any) -> bytes:
    return b"".join(Encoder().encode(value))


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "f8", "c16", "M8[ns]", "S7", "U3", "?"])
def test_every_kind_of_array_comes_back(dtype: str):
    """Shape, dtype and content, wherever it stands."""
    array = np.zeros((LARGE, 3), dtype)
    array[1:] = np.arange(3).astype(dtype)
    value = decode(joined([1, {"a": array.T, "b": array}]))[1]
    assert np.array_equal(value["a"], array.T)
    assert np.array_equal(value["b"], array)
    assert (value["b"].shape, value["b"].dtype) == (array.shape, array.dtype)


def test_a_mapped_file_gives_arrays_without_a_copy():
    """Whatever a gigabyte of them costs, it is no memory."""
    value = [np.arange(LARGE + n, dtype=np.float64) for n in range(3)]
    with tempfile.TemporaryFile() as file:
        file.write(joined(value))
        file.flush()
        access = mmap.PROT_READ | mmap.PROT_WRITE
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=access)
    back = decode(mapped)
    whole = np.frombuffer(mapped, np.uint8)
    for array, expected in zip(back, value, strict=True):
        assert np.array_equal(array, expected)
        assert np.shares_memory(array, whole)
        assert array.ctypes.data % ALIGNMENT == 0
        assert array.flags.writeable


def test_what_was_sent_is_the_receiver_s_own():
    """The memory of a message may be used for the next one."""
    blob = bytearray(joined(np.arange(LARGE)))
    array = decode(memoryview(blob))
    blob[:] = bytes(len(blob))
    assert array[-1] == LARGE - 1
    assert array.flags.writeable


def test_classes_come_back_as_they_are_annotated():
    """A field that is an array is one."""
    back = decode(joined(Picture("p", np.ones((300, 300)))), Picture)
    assert isinstance(back, Picture)
    assert back.pixels.shape == (300, 300)
    assert back.mask is None


def test_what_holds_no_large_array_is_plain_messagepack():
    """Other programs read it, and it costs nothing."""
    for value in ({"a": [1, None, b"x" * 100_000]}, np.arange(3), np.float32(2)):
        (part,) = Encoder().encode(value)
        assert part == codec.encode(value)
        assert np.array_equal(decode(part), codec.decode(part))


def test_one_value_leaves_nothing_for_the_next():
    """Also where it could not be encoded."""
    encoder = Encoder()
    with pytest.raises(TypeError, match="no data"):
        encoder.encode([np.zeros(LARGE), object()])
    assert len(encoder.encode(1)) == 1
    assert np.array_equal(decode(b"".join(encoder.encode(np.ones(LARGE)))), np.ones(LARGE))


def test_what_is_broken_is_refused():
    """A file that was cut, and an array that refers to nothing."""
    parts = Encoder().encode(np.arange(LARGE))
    with pytest.raises(ValueError, match=f"{LARGE} elements of <i8 at byte"):
        decode(bytearray(b"".join(parts)[:-ALIGNMENT]))
    with pytest.raises(ValueError, match="beside"):
        codec.decode(parts[1])
    with pytest.raises(TypeError, match="no data"):
        Encoder().encode(np.array([object()] * LARGE))
