"""The tensors of one shard."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay import _core, _forks
from forebay._numpy import Array, np
from forebay.errors import ConfigError, OutOfRangeError
from forebay.tensor.prepare.dtype import described, kind_of, tensor_dtype
from forebay.tensor.prepare.ref import Meaning, NameTable, TensorRef
from forebay.tensor.prepare.tensor import Tensor, shape_of
from forebay.tensor.prepare.work import pushes_of
from forebay.tensor.server.file_tensor import FileTensor, open_rows
from forebay.tensor.server.memory_ranges import MemoryRanges

if TYPE_CHECKING:
    from forebay.memory import Arena

__all__ = ["Table"]


class Published(NamedTuple):
    """One tensor of a shard.

    Attributes:
        key: its id and generation.
        array: the rows of this shard; None where they are in a file.
        dtype: of an element.
        shape: of the whole tensor.
        first: the first row of this shard.
        rows: how many it has.
    """

    key: tuple[int, int]
    array: Array | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first: int
    rows: int


class Table:
    """The tensors of one shard.

    Args:
        core: what serves them.
        arena: what they lie in.
        shard: which one this is.
        shards: how many there are.
    """

    def __init__(self, core: _core.TensorShard, arena: Any, shard: int, shards: int) -> None:
        self._core = core
        self._arena: Arena = arena
        self._shard = shard
        self._shards = shards
        self._published: dict[str, Published] = {}
        self._ranges = MemoryRanges()
        # What is held and what the core offers change together; the core orders them anyway.
        self._lock = threading.Lock()
        _forks.watch(self)

    def publish(self, name: str, tensor: Tensor | FileTensor | Any) -> None:
        """Make room for the rows of this shard, fill it, and offer it."""
        if isinstance(tensor, FileTensor):
            self._publish_file(name, tensor)
            return
        if isinstance(tensor, Tensor):
            dtype, shape = tensor.dtype, tensor.shape
        else:
            tensor = np.asarray(tensor)
            dtype, shape = tensor_dtype(tensor.dtype), shape_of(tensor.shape)
        if 0 in shape[1:]:
            raise ConfigError(
                f"tensor {name!r} has shape {shape}, with rows of no bytes; "
                "give every axis behind the first at least one element"
            )
        first, end = self._rows(shape[0])
        if isinstance(tensor, Tensor):
            array = self._room((end - first, *shape[1:]), dtype)
            tensor.fill(array, first)
        elif self._shards == 1 and _lies_in(tensor, self._arena):
            array = tensor
        else:
            array = self._room((end - first, *shape[1:]), dtype)
            array[...] = tensor[first:end]
        memory = array.reshape(-1).view(np.uint8)
        with self._lock:
            self._ranges.check(name, array)
            key = self._core.publish(
                name, described(dtype), kind_of(dtype), dtype.itemsize, array.shape, memory
            )
            self._ranges.put(name, array)
            self._published[name] = Published(key, array, dtype, shape, first, end - first)

    def _publish_file(self, name: str, tensor: FileTensor) -> None:
        """Offer the rows of this shard, which stay in their file."""
        opened = open_rows(tensor)
        with opened.file:  # the core has a handle of its own
            dtype = tensor_dtype(opened.dtype)
            first, end = self._rows(opened.shape[0])
            with self._lock:
                key = self._core.publish_file(
                    *(name, described(dtype), kind_of(dtype), dtype.itemsize),
                    (end - first, *opened.shape[1:]),
                    opened.file,
                    offset=opened.offset + first * opened.stride_bytes,
                    stride_bytes=opened.stride_bytes,
                    first=first,
                    checksums=opened.checksums,
                )
                self._ranges.take(name)
                self._published[name] = Published(
                    key, None, dtype, opened.shape, first, end - first
                )

    def drop(self, name: str) -> None:
        """Offer it no more."""
        with self._lock:
            self._core.drop(name)
            self._ranges.take(name)
            self._published.pop(name, None)

    def array(self, name: str) -> Array:
        """The rows of this shard, read-only."""
        array = self._find(name).array
        if array is None:
            raise ConfigError(f"the rows of tensor {name!r} are in a file; pull those you need")
        shown = array.view()
        shown.flags.writeable = False
        return shown

    def write(self, name: str, rows: Any, values: Any, op: Any) -> int:
        """Change rows between two answers."""
        held = self._find(name)
        if held.array is None:
            raise ConfigError(
                f"tensor {name!r} is rows of a file, and read-only here; append to the file,"
                " and publish it again"
            )
        parts = [(held.key, held.shape[0])]
        meaning = Meaning(name, held.dtype, held.shape[1:], parts, _table.epoch)
        ref = TensorRef(_table, name, meaning)
        ((key, wanted, count, memory, adds),) = pushes_of(_table, ((ref, rows, values, op),)).parts[
            0
        ]
        here = held.rows
        if count is None:
            numbers = wanted.view(np.int64) - held.first
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < here:
                raise self._elsewhere(name, held)
            return self._core.write(key, numbers, None, memory, add=adds)
        if count and not held.first <= wanted <= wanted + count <= held.first + here:
            raise self._elsewhere(name, held)
        return self._core.write(key, wanted - held.first, count, memory, add=adds)

    def describe(self) -> dict[str, Any]:
        """What there is."""
        return {
            "shard": self._shard,
            "shards": self._shards,
            "tensors": {
                name: {
                    "dtype": str(held.dtype),
                    "shape": held.shape,
                    "first": held.first,
                    "rows": held.rows,
                }
                for name, held in tuple(self._published.items())
            },
        }

    def close(self) -> None:
        """Let go of the memory, which the core does not offer any more."""
        self._published.clear()

    def _forget(self) -> object:
        """In a forked child, whose parent may have been publishing; the core refuses it there."""
        before = self._lock
        self._lock = threading.Lock()
        return before

    def _rows(self, rows: int) -> tuple[int, int]:
        """The first row of this shard and the end: as even as whole numbers allow."""
        return rows * self._shard // self._shards, rows * (self._shard + 1) // self._shards

    def _room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return self._arena.empty(shape, dtype) if math.prod(shape) else np.empty(shape, dtype)

    def _find(self, name: str) -> Published:
        held = self._published.get(name)
        if held is None:
            raise ConfigError(
                f"this server has no tensor {name!r}; it has {', '.join(self._published)}"
            )
        return held

    def _elsewhere(self, name: str, held: Published) -> OutOfRangeError:
        end = held.first + held.rows
        return OutOfRangeError(
            f"shard {self._shard} holds rows {held.first} to {end} (exclusive) of tensor {name!r}"
        )


_table = NameTable([""])
"""For the owner's writes, which look no name up."""


def _lies_in(array: Array, arena: Arena) -> bool:
    """Whether an array is memory of an arena that can be published as it is."""
    if not (array.flags.c_contiguous and array.flags.writeable):
        return False
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return isinstance(base, _core.Buffer) and base.reference[0] == arena.region
