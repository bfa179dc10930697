"""The layout of one environment's observation in its region.

The service writes there, the client reads through a read-only map of it, and both derive the same
layout from the observation space: a head of `HEAD_BYTES`, then one aligned array for each leaf of
the space in the space's own order.
Spaces whose observations have no fixed shape (Text, Graph, Sequence, OneOf, or a class that only
the user knows) have no layout; their observations travel with the answers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from forebay._core import Rows
from forebay.memory import Window

OUTCOME = struct.Struct("<d??")
"""Reward, terminated and truncated, at the beginning of the region."""

OUTCOME_SPANS = ((0, 8), (8, 1), (9, 1))
OUTCOME_DTYPES = (np.float64, np.bool_, np.bool_)

HEAD_BYTES = 64
ALIGN_BYTES = 64  # a cache line, and what arrays of any dtype are aligned to

Array = np.ndarray[Any, np.dtype[Any]]
Tree = Any
"""A leaf, a dict of trees or a tuple of trees, as the space is built."""


class Leaf(NamedTuple):
    """One array of an observation."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * self.dtype.itemsize

    def of(self, memory: Any) -> Array:
        """The array in `memory`, which it keeps mapped; read-only where that is."""
        count = math.prod(self.shape)
        return np.frombuffer(memory, self.dtype, count, self.offset).reshape(self.shape)


class Layout(NamedTuple):
    """The leaves of a space, and how much room they take."""

    tree: Tree
    bytes: int


def layout_of(space: Space[Any]) -> Layout | None:
    """The layout of a space's observations; None where they have no fixed shape."""
    end = HEAD_BYTES

    def tree_of(space: Space[Any]) -> Tree:
        nonlocal end
        if type(space) is spaces.Dict:
            return {key: tree_of(inner) for key, inner in space.spaces.items()}
        if type(space) is spaces.Tuple:
            return tuple(tree_of(inner) for inner in space.spaces)
        if type(space) not in _FIXED or space.shape is None or space.dtype is None:
            raise LookupError(space)
        leaf = Leaf(end, tuple(space.shape), np.dtype(space.dtype))
        end = -(-(end + leaf.bytes) // ALIGN_BYTES) * ALIGN_BYTES
        return leaf

    try:
        tree = tree_of(space)
    except LookupError:
        return None
    return Layout(tree, end)


_FIXED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def writer(tree: Tree, memory: Any) -> Callable[[Any], None]:
    """A function that writes an observation into `memory`.

    It raises where numpy's `stack` would: a value of another shape, or of a dtype that is not of
    the same kind.
    """
    if isinstance(tree, dict):
        inner = [(key, writer(branch, memory)) for key, branch in tree.items()]

        def write_dict(observation: Any) -> None:
            for key, write in inner:
                write(observation[key])

        return write_dict
    if not isinstance(tree, Leaf):
        parts = [writer(branch, memory) for branch in tree]

        def write_tuple(observation: Any) -> None:
            for write, value in zip(parts, observation, strict=True):
                write(value)

        return write_tuple
    target, shape, dtype = tree.of(memory), tree.shape, tree.dtype

    def write_leaf(value: Any) -> None:
        if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
            target[...] = value
            return
        if np.shape(value) != shape:
            raise ValueError(f"an observation has the shape {np.shape(value)}, not {shape}")
        np.copyto(target, value)

    return write_leaf


class Reader:
    """Reads what several environments left in their regions, as one batch.

    Args:
        parts: for each environment its layout, its window, and where its part begins there; the
            layouts agree in keys, shapes and dtypes, and have the same offsets.
        copy: return new observation arrays each time, rather than the same ones.
    """

    def __init__(self, parts: list[tuple[Layout, Window, int]], *, copy: bool) -> None:
        count = len(parts)
        self._parts = parts
        self._tree = parts[0][0].tree
        leaves = _leaves(self._tree)
        spans = [(leaf.offset, leaf.bytes) for leaf in leaves]
        windows = [(window, start) for _, window, start in parts]
        self._rows = Rows(windows, [*OUTCOME_SPANS, *spans])
        self._outcomes = [np.zeros(count, dtype) for dtype in OUTCOME_DTYPES]
        self._batch = [np.zeros((count, *leaf.shape), leaf.dtype) for leaf in leaves]
        self._copy = copy

    def read(self) -> tuple[Any, Array, Array, Array]:
        """Observations, rewards, terminated and truncated."""
        rewards, terminated, truncated = (np.empty_like(array) for array in self._outcomes)
        batch = self._batch
        if self._copy:
            batch = [np.empty_like(array) for array in batch]
        self._rows.read([rewards, terminated, truncated, *batch])
        each = iter(batch)
        observations = _grow(self._tree, lambda _: next(each))
        return observations, rewards, terminated, truncated

    def row(self, index: int) -> Any:
        """A copy of what one environment left; it may have ended since."""
        layout, window, start = self._parts[index]
        memory = memoryview(window)[start:]
        return _grow(layout.tree, lambda leaf: leaf.of(memory).copy())


def _leaves(tree: Tree) -> list[Leaf]:
    found: list[Leaf] = []
    _grow(tree, found.append)
    return found


def _grow(tree: Tree, act: Callable[[Leaf], Any]) -> Any:
    """A tree of the same form, with what `act` makes of each leaf, in their order."""
    if type(tree) is Leaf:
        return act(tree)
    if isinstance(tree, dict):
        return {key: _grow(branch, act) for key, branch in tree.items()}
    return tuple(_grow(branch, act) for branch in tree)
