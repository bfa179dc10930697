"""Going through a window in batches, two of which are read ahead."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from forebay._numpy import Array, np

if TYPE_CHECKING:
    from forebay.blockio.records.file import RecordFile
    from forebay.blockio.records.read import Read

__all__ = ["batches", "read_ahead"]

AHEAD: Final = 2
"""Batches that are read while one is used: enough to hide computing, as the sampler's default."""


def batches(
    file: RecordFile, n: int, *, rng: np.random.Generator, epochs: int | None, shuffle: bool
) -> Iterator[Array]:
    """Batches of `n` records, each record once an epoch."""
    return read_ahead(file, _plan(file, n, rng, epochs, shuffle=shuffle))


def read_ahead(file: RecordFile, plans: Iterable[Array]) -> Iterator[Array]:
    """Batches of the records with these numbers, some of them read ahead."""
    ahead: deque[Read] = deque()
    for numbers in plans:
        ahead.append(file._begin(numbers))
        if len(ahead) > AHEAD:
            yield file._end(ahead.popleft())
    while ahead:
        yield file._end(ahead.popleft())


def _plan(
    file: RecordFile, n: int, rng: np.random.Generator, epochs: int | None, *, shuffle: bool
) -> Iterator[Array]:
    for _ in itertools.count() if epochs is None else range(epochs):
        file.refresh()
        first, length = file._window()
        if not length:
            return
        order = rng.permutation(length) if shuffle else np.arange(length)
        for start in range(0, length, n):
            yield order[start : start + n] + first
