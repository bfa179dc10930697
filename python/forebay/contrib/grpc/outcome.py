"""Whether a server may be used again, by the outcome of its calls."""

from __future__ import annotations

import threading
from typing import Any

LEFT = frozenset({"DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE"})
"""Codes of calls that may still run there, or that never arrived whole."""


class Outcome:
    """Counts calls under way, and remembers an abandoned one. Thread-safe."""

    __slots__ = ("_left", "_lock", "_running")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._left = False

    def began(self) -> None:
        """A call was sent."""
        with self._lock:
            self._running += 1

    def ended(self, code: Any) -> None:
        """A call ended with a status code; None: its caller left it."""
        with self._lock:
            self._running -= 1
            self._left = self._left or code is None or code.name in LEFT

    def reusable(self) -> bool:
        """Whether nothing is under way and nothing was left."""
        with self._lock:
            return not self._running and not self._left
