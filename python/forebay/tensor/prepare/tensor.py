"""What a tensor is to be, before there is one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from forebay._numpy import Array
from forebay.errors import ConfigError
from forebay.tensor.prepare.dtype import tensor_dtype

__all__ = ["Tensor", "shape_of"]

Initial = Callable[[int, int], Any]


class Tensor:
    """Shape, dtype and first content of a tensor, for a server that is yet to be started.

    It travels with `TensorServer.spec(...)`, where an array would travel with all of its bytes.

    Args:
        shape: rows, and the shape of a row; of the whole tensor, whatever a shard holds of it.
        dtype: what `numpy.dtype` takes, without Python objects in it; float32 unless given.
        initial: what every element is, or a function that gets the number of a first row and how
            many there are, and returns their content; it is called in the server's process, for the
            rows that the shard holds, so with a spec it is one of a module that can be imported.

    Raises:
        ConfigError: the shape has no rows axis or a negative number, or the dtype cannot be used.
    """

    __slots__ = ("dtype", "initial", "shape")

    def __init__(
        self,
        shape: SupportsIndex | Sequence[SupportsIndex],
        dtype: Any = "f4",
        *,
        initial: Initial | Any = 0,
    ) -> None:
        self.shape = shape_of(shape)
        self.dtype = tensor_dtype(dtype)
        self.initial = initial

    def fill(self, memory: Array, first: int) -> None:
        """Write the first content of the rows from `first` on into `memory`."""
        if not callable(self.initial):
            if self.dtype.names is None or self.initial != 0:
                memory[...] = self.initial
            else:
                memory.view("u1")[...] = 0
        elif len(memory):
            memory[...] = self.initial(first, len(memory))

    def __repr__(self) -> str:
        return f"Tensor({self.shape}, {self.dtype!s})"


def shape_of(shape: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
    """A shape as numbers.

    Raises:
        ConfigError: it has no first axis, which rows are counted on, or a negative number.
    """
    given = shape if isinstance(shape, Sequence) else (shape,)
    try:
        sizes = tuple(operator.index(size) for size in given)
    except TypeError as error:
        raise ConfigError(f"invalid shape {shape!r}: {error}; use non-negative integers") from error
    if not sizes:
        raise ConfigError("a tensor needs a first axis, which rows are counted on; shape is ()")
    if min(sizes) < 0:
        raise ConfigError(f"shape {sizes} has a negative number")
    return sizes
