"""Drawing batches ahead, so that they are read while the caller computes.

The batches are the same with and without prefetching. Ahead is drawn from a copy of the caller's
generator; with each batch goes the state from which it was drawn, and the state afterwards.
A batch is used where the generator, the number of records and the window are those that it was
drawn for, and then the generator is set to the state afterwards. Otherwise what was drawn ahead is
thrown away: the caller has used the generator meanwhile, or records were appended.

A caller that appends between any two samples would read all of it in vain. So after something was
thrown away, nothing is drawn ahead until a call goes on where the one before it ended.
"""

from __future__ import annotations

import concurrent.futures
import copy
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from forebay._numpy import Array, np
from forebay.blockio.records.read import Read, Reader
from forebay.errors import LimitError

__all__ = ["ABANDONED_S", "DRAWS_MAX", "CrowdedError", "Sampler", "Window"]

ABANDONED_S: Final = 10.0
"""How long to wait for reads in vain to give their memory back, where there is no other."""

DRAWS_MAX: Final = 16
"""How often a batch is drawn that is overwritten while it is read."""


class CrowdedError(Exception):
    """There is no memory before reads in vain have given theirs back.

    Attributes:
        reads: wait for these, `ABANDONED_S` at most, and draw again.
    """

    def __init__(self, reads: list[concurrent.futures.Future[Array]]) -> None:
        super().__init__("no memory yet")
        self.reads = reads


class Window(NamedTuple):
    """The records that can be read.

    Attributes:
        first: number of the oldest, counted from 0 on.
        length: how many there are.
    """

    first: int
    length: int


class _Point(NamedTuple):
    """What decides which records come next."""

    n: int
    window: Window
    state: Mapping[str, Any]

    def is_at(self, other: _Point) -> bool:
        same = self.n == other.n and self.window == other.window
        return same and _equal(self.state, other.state)


class _Ahead(NamedTuple):
    """A batch that was drawn ahead."""

    point: _Point
    after: Mapping[str, Any]
    read: Read


class Sampler:
    """Draws batches, some of them ahead. Any thread."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._chain: deque[_Ahead] = deque()
        self._ahead: np.random.Generator | None = None
        self._expected: _Point | None = None
        self._abandoned: list[concurrent.futures.Future[Array]] = []

    def next(self, n: int, rng: np.random.Generator, prefetch: int, window: Window) -> Read:
        """The next batch: begun ahead, or only planned.

        Args:
            n: records.
            rng: is in the state afterwards when this returns.
            prefetch: batches to draw ahead at most; 0: none.
            window: from which to draw; not empty.

        Raises:
            CrowdedError: there is no memory yet; `rng` is as it was.
            LimitError: there is no record.
        """
        with self._lock:
            point = _Point(n, window, rng.bit_generator.state)
            goes_on = self._expected is None or self._expected.is_at(point)
            if self._chain and prefetch and self._chain[0].point.is_at(point):
                _, after, read = self._chain.popleft()
                rng.bit_generator.state = after
            else:
                goes_on = goes_on and not self._chain
                self._abandon()
                try:
                    read = self._reader.plan(_draw(n, rng, window))
                except LimitError:
                    rng.bit_generator.state = point.state
                    if not self._abandoned:
                        raise
                    abandoned, self._abandoned = self._abandoned, []
                    raise CrowdedError(abandoned) from None
            self._expected = _Point(n, window, rng.bit_generator.state)
            if prefetch and goes_on:
                self._fill(self._expected, rng, prefetch)
            return read

    def forget(self) -> None:
        """Throw away what was drawn ahead."""
        with self._lock:
            self._abandon()

    def _fill(self, point: _Point, rng: np.random.Generator, prefetch: int) -> None:
        if self._ahead is None:
            self._ahead = copy.deepcopy(rng)
        n, window, _ = point
        while len(self._chain) < prefetch:
            before = self._ahead.bit_generator.state
            try:
                read = self._reader.plan(_draw(n, self._ahead, window))
            except LimitError:  # no room to read ahead is no reason to fail now
                self._ahead.bit_generator.state = before
                return
            self._reader.begin(read)
            after = self._ahead.bit_generator.state
            self._chain.append(_Ahead(_Point(n, window, before), after, read))

    def _abandon(self) -> None:
        self._abandoned = [future for future in self._abandoned if not future.done()]
        for ahead in self._chain:
            if ahead.read.future is not None:
                self._abandoned.append(ahead.read.future)
        self._chain.clear()
        self._ahead = None


def _draw(n: int, rng: np.random.Generator, window: Window) -> Array:
    return rng.integers(window.first, window.first + window.length, n)


def _equal(one: Any, other: Any) -> bool:
    """Whether two states of generators are the same; some hold arrays."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)
