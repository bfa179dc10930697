"""How far a request is and how fast, in the words of a line of progress."""

from __future__ import annotations

import time
from typing import Any, Final

from forebay._units import duration

LINE_FRACTION: Final = 0.1
LINE_S: Final = 30.0
"""Without a terminal, a line is printed for this part of the work, or after this many seconds."""


class Pace:
    """How far a request is, how fast, and when that was last printed."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._told_at = self._began
        self._told_step = 0
        self._first: float | None = None
        self.done: float = 0
        self.total: float | None = None
        self.message = ""
        self.unit = ""

    def take(self, event: dict[str, Any]) -> None:
        """Learn from an event."""
        self.done = event.get("done") or 0
        self.total = event.get("total") or None
        self.message = event.get("message") or ""
        self.unit = event.get("unit") or ""
        if self._first is None:
            self._first = self.done

    def is_due(self) -> bool:
        """Whether a line is to be printed; if so, it counts as printed."""
        now = time.monotonic()
        step = int(self.done / self.total / LINE_FRACTION + 1e-9) if self.total else 0
        if step <= self._told_step and now - self._told_at < LINE_S:
            return False
        self._told_at, self._told_step = now, max(step, self._told_step)
        return True

    def text(self) -> str:
        """The text of a line: part, count, rate, time left, message."""
        parts = []
        if self.total:
            parts.append(f"{self.done / self.total:.0%} ({self.done:g} of {self._count()})")
        else:
            parts.append(f"{self.done:g} {self.unit}".rstrip())
        rate = self.rate()
        if rate:
            parts.append(f"{rate:.3g} {self.unit or 'steps'}/s")
            if self.total:
                parts.append(f"{duration(max(0.0, self.total - self.done) / rate)} left")
        if self.message:
            parts.append(self.message)
        return ", ".join(parts)

    def rate(self) -> float | None:
        """Steps per second since the first event; None before there are any."""
        elapsed = time.monotonic() - self._began
        moved = self.done - (self._first or 0)
        return moved / elapsed if moved > 0 and elapsed > 0 else None

    def _count(self) -> str:
        return f"{self.total:g} {self.unit}".rstrip()
