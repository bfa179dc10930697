"""A service to test environments with: it walks, and dies or hangs when told."""

from __future__ import annotations

import os
import signal
import time

import forebay


class Walk(forebay.Service):
    """A walk along the integers."""

    def __init__(self, start: int = 0):
        self._start = start
        self._place = start

    def begin(self) -> int:
        """Go to the start."""
        self._place = self._start
        return self._place

    def move(self, by: int) -> int:
        """Move and tell the place; by 13 dies, by 99 hangs, by 77 raises."""
        if by == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if by == 99:
            time.sleep(3600)
        if by == 77:
            raise ValueError("no such move")
        self._place += by
        return self._place

    def reset(self) -> None:
        """Forget the walk."""
        self._place = self._start
