"""Times and sizes for people, as commands print them; clients show them in notebooks too."""

from __future__ import annotations

from forebay._units import duration, since, size

__all__ = ["duration", "since", "size"]
