"""What a check of `forebay doctor` says."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISSING", "NOTE", "OK", "Finding"]

OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: of the thing.
        state: "ok", "note" (works, less well) or "missing" (needed, and not there).
        value: what was found.
        next: what to do, where there is something.
    """

    name: str
    state: str
    value: str
    next: str | None = None
