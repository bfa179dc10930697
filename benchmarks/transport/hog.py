"""A thread that never gives up the GIL by itself, and what of its speed a server leaves it."""

from __future__ import annotations

import mmap
import threading
import time
from multiprocessing.connection import Connection

HOLD_S = 1.0


class Hog:
    """Counts in Python without an end; the count is in memory that every process of a round sees.

    Make it before the processes are forked.

    Args:
        hold_s: how long it counts without giving up the GIL by itself.
        release_s: how long it sleeps in between.
    """

    def __init__(self, hold_s: float = HOLD_S, release_s: float = 0.0) -> None:
        self._hold_s = hold_s
        self._release_s = release_s
        self._count = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")

    def spin(self) -> None:
        """Count, as the experiment with `--gil-hold-time` did: look at the clock, add one."""
        count, clock = self._count, time.perf_counter
        while True:
            until = clock() + self._hold_s
            while clock() < until:
                count[0] += 1
            if self._release_s:
                time.sleep(self._release_s)

    def start_thread(self, _: Connection) -> None:
        """Spin in a thread of this process."""
        threading.Thread(target=self.spin, daemon=True).start()

    def serve(self, _: Connection) -> None:
        """Spin as all that a process does."""
        self.spin()

    def count(self) -> int:
        """How far it has come."""
        return self._count[0]

    def free_speed(self, seconds: float) -> float:
        """Counts per second while nobody sends anything."""
        before, started = self.count(), time.perf_counter()
        time.sleep(seconds)
        return (self.count() - before) / (time.perf_counter() - started)
