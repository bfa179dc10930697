"""The result of a check of `forebay doctor`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISSING", "NOTE", "OK", "Finding"]

OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: of what was checked.
        state: "ok", "note" (works, less well) or "missing" (needed, and does not exist).
        value: what was found.
        next: what to do, if anything.
    """

    name: str
    state: str
    value: str
    next: str | None = None
