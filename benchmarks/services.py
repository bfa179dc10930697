"""Our contestants' services; they stand alone because the peers' environments lack Forebay."""

from __future__ import annotations

import os
import time

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

    def touch(self, array: npt.NDArray[np.uint8]) -> int:
        """Sum one byte of every page, so that each page of the argument is really read."""
        return int(array[::PAGE_BYTES].sum(dtype=np.int64))


class Tally(Service):
    """Keeps nothing that a lease would have to be reset for."""

    def add(self, value: int) -> int:
        """Return the number after."""
        return value + 1


class Fresh(Service):
    """Is ready once its module, and with it numpy, is imported; every lease gets a new one."""

    resets = Reset.NEVER

    def birth(self) -> tuple[int, int]:
        """Process id, and when it was forked (monotonic nanoseconds)."""
        return os.getpid(), _forked_at_ns
