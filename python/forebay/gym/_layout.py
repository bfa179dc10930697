"""Where one environment's observation and outcome lie in its region.

The service writes there, the client reads through a read-only map of it, and both derive the same
layout from the observation space: a head of `HEAD_BYTES`, then one aligned array for each leaf of
the space in the space's own order.
Spaces whose observations have no fixed shape (Text, Graph, Sequence, OneOf, or a class that only
the user knows) have no layout; their observations travel with the answers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

OUTCOME = struct.Struct("<d??")
"""Reward, terminated and truncated, at the beginning of the region."""

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

    def place(space: Space[Any]) -> Tree:
        nonlocal end
        if type(space) is spaces.Dict:
            return {key: place(inner) for key, inner in space.spaces.items()}
        if type(space) is spaces.Tuple:
            return tuple(place(inner) for inner in space.spaces)
        if type(space) not in _FIXED or space.shape is None or space.dtype is None:
            raise LookupError(space)
        leaf = Leaf(end, tuple(space.shape), np.dtype(space.dtype))
        size = math.prod(leaf.shape) * leaf.dtype.itemsize
        end = -(-(end + size) // ALIGN_BYTES) * ALIGN_BYTES
        return leaf

    try:
        tree = place(space)
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
    target, shape = tree.of(memory), tree.shape

    def write_leaf(value: Any) -> None:
        if np.shape(value) != shape:
            raise ValueError(f"an observation has the shape {np.shape(value)}, not {shape}")
        np.copyto(target, value)

    return write_leaf


class Reader:
    """Reads the observations of several regions as one batch.

    Args:
        trees: the layout of each of them; they agree in keys, shapes and dtypes.
        memories: the regions, in the order of the environments.
        copy: return new arrays each time, rather than the same ones.
    """

    def __init__(self, trees: list[Tree], memories: list[Any], *, copy: bool) -> None:
        self._copy = copy
        self._leaves: list[tuple[list[Array], Array]] = []
        self._batch = self._make(trees, memories)

    def _make(self, trees: list[Tree], memories: list[Any]) -> Any:
        first = trees[0]
        if isinstance(first, dict):
            return {key: self._make([tree[key] for tree in trees], memories) for key in first}
        if not isinstance(first, Leaf):
            return tuple(self._make(list(branch), memories) for branch in zip(*trees, strict=True))
        rows = [leaf.of(memory) for leaf, memory in zip(trees, memories, strict=True)]
        batch = np.zeros((len(rows), *first.shape), first.dtype)
        self._leaves.append((rows, batch))
        return batch

    def read(self, keep: Collection[int] = ()) -> Any:
        """What lies there now; environments in `keep` stay as they were read last."""
        for rows, batch in self._leaves:
            for place, row in enumerate(rows):
                if place not in keep:
                    batch[place] = row
        return deepcopy(self._batch) if self._copy else self._batch

    def resume(self, other: Reader) -> None:
        """Take over what another reader has read."""
        for (_, batch), (_, known) in zip(self._leaves, other._leaves, strict=True):
            batch[:] = known

    def row(self, place: int) -> Any:
        """A copy of what was read last for one environment."""
        return _row(self._batch, place)


def _row(batch: Any, place: int) -> Any:
    if isinstance(batch, dict):
        return {key: _row(branch, place) for key, branch in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_row(branch, place) for branch in batch)
    return batch[place].copy()
