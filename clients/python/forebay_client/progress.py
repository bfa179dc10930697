"""How far a request is, as it tells itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is.

    Attributes:
        done: so much of the work.
        total: all of it, or None where nobody knows.
        message: what it does now.
        unit: of both numbers.
    """

    done: float
    total: float | None
    message: str
    unit: str

    @classmethod
    def of(cls, event: dict[str, Any]) -> Progress:
        """The progress that an event tells."""
        return cls(
            event.get("done") or 0,
            event.get("total"),
            event.get("message") or "",
            event.get("unit") or "",
        )
