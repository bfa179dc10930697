"""DLPack: arrays and buffers of an arena in other libraries, uncopied, under the same lease."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest

from forebay.errors import BusyError, StaleError
from forebay.memory import Arena

CPU = 1
"""DLPack's number for the device."""


class Tensor(ctypes.Structure):
    """The start of `DLManagedTensor`: what a library like torch reads."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class Consumer:
    """Takes a capsule over as torch does: reads its tensor, renames it, calls the deleter."""

    def __init__(self, source: Any) -> None:
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
        capsule = source.__dlpack__()
        self._address = api.PyCapsule_GetPointer(capsule, b"dltensor")
        self._used = b"used_dltensor"  # the capsule does not copy its name
        api.PyCapsule_SetName(capsule, self._used)
        self.tensor = Tensor.from_address(self._address)

    @property
    def address(self) -> int:
        return int(self.tensor.data) + int(self.tensor.byte_offset)

    def release(self) -> None:
        self.tensor.deleter(self._address)


@pytest.fixture
def arena() -> Arena:
    return Arena("64MiB")


def test_numpy_takes_a_buffer_without_a_copy_and_keeps_it(arena: Arena) -> None:
    """An array over memory that was freed shows somebody else's bytes."""
    buffer = arena.allocate(1000)
    memoryview(buffer)[:] = bytes(range(250)) * 4
    array = np.from_dlpack(buffer)
    assert array.shape == (1000,)
    assert array.dtype == np.uint8
    assert array.ctypes.data == np.asarray(buffer).ctypes.data
    with pytest.raises(BusyError):
        buffer.free()
    part = array[5:10]
    del buffer, array
    gc.collect()
    assert arena.stats()["blocks"] == 1
    assert part.tolist() == [5, 6, 7, 8, 9]
    del part
    gc.collect()
    assert arena.stats()["blocks"] == 0


def test_an_array_of_the_arena_goes_on_without_a_copy(arena: Arena) -> None:
    """`torch.from_dlpack(arena.empty(...))` is what it is for."""
    array = arena.empty((4, 8), np.float32)
    array[:] = 3
    other = np.from_dlpack(array)
    assert other.ctypes.data == array.ctypes.data
    assert other.shape == (4, 8)
    assert other.dtype == np.float32
    assert array.__dlpack_device__() == (CPU, 0)
    del array
    gc.collect()
    assert arena.stats()["blocks"] == 1
    assert other.sum() == 96


@pytest.mark.parametrize("kind", ["buffer", "array"])
def test_a_consumer_keeps_the_lease_until_it_calls_the_deleter(arena: Arena, kind: str) -> None:
    """A library holds nothing of Python's, only the capsule's tensor."""
    source: Any = arena.allocate(64) if kind == "buffer" else arena.empty(64, np.uint8)
    np.asarray(source)[:] = 9
    address = np.asarray(source).ctypes.data
    assert source.__dlpack_device__() == (CPU, 0)
    consumer = Consumer(source)
    tensor = consumer.tensor
    assert (consumer.address, tensor.device_type, tensor.ndim) == (address, CPU, 1)
    assert (tensor.shape[0], tensor.bits, tensor.lanes) == (64, 8, 1)
    del source
    gc.collect()
    assert arena.stats()["blocks"] == 1
    assert ctypes.string_at(consumer.address, 64) == b"\t" * 64
    consumer.release()
    gc.collect()
    assert arena.stats()["blocks"] == 0


def test_a_capsule_that_nobody_takes_gives_the_lease_back(arena: Arena) -> None:
    """A consumer that failed must not keep memory for ever."""
    buffer = arena.allocate(64)
    capsule = buffer.__dlpack__()
    with pytest.raises(BusyError):
        buffer.free()
    del capsule
    gc.collect()
    buffer.free()


def test_a_freed_buffer_makes_no_capsule(arena: Arena) -> None:
    """Its memory may be another's by then."""
    buffer = arena.allocate(64)
    buffer.free()
    with pytest.raises(StaleError):
        buffer.__dlpack__()
