"""The deadline of a call, connecting included."""

from __future__ import annotations

import time

__all__ = ["Limit"]


class Limit:
    """The time of one call, which starts to run with its first wait.

    A call that need not connect or look names up leaves all of its time to the core, and reads no
    clock.

    Args:
        seconds: how many; None: no limit.
    """

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end: float | None = None

    def begin(self) -> None:
        """Start to run, unless it runs already."""
        if self.seconds is not None and self._end is None:
            self._end = time.monotonic() + self.seconds

    def left(self) -> float | None:
        """Seconds that are left, at least 0; None: no limit."""
        return self.seconds if self._end is None else max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> Limit:
        """The same, but at most so many seconds, which begin to run now."""
        self.begin()
        left = self.left()
        part = Limit(seconds if left is None else min(left, seconds))
        part.begin()
        return part
