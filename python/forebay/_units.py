"""Times and sizes for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def duration(seconds: Any) -> str:
    """Seconds, with the unit that fits; "-" for None."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def size(number: Any) -> str:
    """Bytes, with the unit that fits; "-" for None."""
    if number is None:
        return "-"
    for unit, of in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= of:
            amount = number / of
            return f"{amount:.0f} {unit}" if amount >= 9.95 else f"{amount:.1f} {unit}"
    return f"{number:.0f} B"


def since(moment: Any, now: datetime | None = None) -> float | None:
    """Seconds since an RFC 3339 date; None without a date."""
    if not moment:
        return None
    then = datetime.fromisoformat(moment)
    return ((now or datetime.now(UTC)) - then).total_seconds()
