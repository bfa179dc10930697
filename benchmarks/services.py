"""Our contestants' services; they stand alone because the peers' environments lack Forebay."""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from forebay.pool import Reset, Service

PAGE_BYTES = 4096
_forked_at_ns = 0


def _note_fork() -> None:
    global _forked_at_ns
    _forked_at_ns = time.monotonic_ns()


# Runs in each process that the template forks: the proof that none was forked ahead.
os.register_at_fork(after_in_child=_note_fork)


class Echo(Service):
    """Answers with what it got."""

    def echo(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data

    def repeat(self, data: bytes, count: int) -> Iterator[bytes]:
        """Yield the bytes so many times."""
        yield from itertools.repeat(data, count)

    def touch(self, array: npt.NDArray[np.uint8]) -> int:
        """Sum one byte of every page, so that each page of the argument is really read."""
        return int(array[::PAGE_BYTES].sum(dtype=np.int64))


class Tally(Service):
    """Keeps nothing that a lease would have to be reset for."""

    def add(self, value: int) -> int:
        """Return the number after."""
        return value + 1


class Slow(Service):
    """Takes so long to start."""

    def __init__(self, seconds: float) -> None:
        time.sleep(seconds)


class Fresh(Service):
    """Is ready once its module, and with it numpy, is imported; every lease gets a new one."""

    resets = Reset.NEVER

    def birth(self) -> tuple[int, int]:
        """Process id, and when it was forked (monotonic nanoseconds)."""
        return os.getpid(), _forked_at_ns


class Resetting(Echo):
    """Is reset after each lease, and counts how often."""

    def __init__(self) -> None:
        self._resets = 0

    def resets_done(self) -> int:
        """How many resets there were."""
        return self._resets

    def reset(self) -> None:
        """Forget nothing but the lease."""
        self._resets += 1


State = list[npt.NDArray[np.uint8]]


def state(arrays: int, array_bytes: int) -> State:
    """So many arrays of random bytes, the same each time."""
    random = np.random.default_rng(7)
    return [random.integers(256, size=array_bytes, dtype=np.uint8) for _ in range(arrays)]


class Holder(Service):
    """Holds a state and what each visit changed in it; nobody gets one after another."""

    resets = Reset.NEVER

    def __init__(self, arrays: int, array_bytes: int) -> None:
        self._hold(state(arrays, array_bytes))

    def _hold(self, arrays: State) -> None:
        self._state = arrays
        self._visits = 0

    def visit(self) -> tuple[int, int]:
        """Change a byte of each array; tell the number of visits and the sum of other bytes."""
        self._visits += 1
        for array in self._state:
            array[0] = self._visits
        return self._visits, sum(int(array[-1]) for array in self._state)


class Loader(Holder):
    """Loads its state from a pickle."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._hold(pickle.load(file))
