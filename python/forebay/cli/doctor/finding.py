"""The result of a check of `forebay doctor`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISSING", "NOTE", "OK", "Finding", "missing", "note", "ok"]

OK, NOTE, MISSING = "ok", "note", "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: of what was checked.
        state: "ok", "note" (works, less well) or "missing" (needed, and does not exist).
        value: what was found.
        why: what the next step is good for; empty if nothing is to be done.
        to_type: the next step, one command or one setting; None exactly if the state is "ok".
    """

    name: str
    state: str
    value: str
    why: str = ""
    to_type: str | None = None

    def __post_init__(self) -> None:
        if (self.state == OK) != (self.to_type is None):
            raise ValueError(f"{self.name}: {self.state}, and to type: {self.to_type}")

    @property
    def next(self) -> str | None:
        """What to do, ending with what to type; None if nothing is to be done."""
        return None if self.to_type is None else f"{self.why}: {self.to_type}"


def ok(name: str, value: str) -> Finding:
    """Something that works as well as it can."""
    return Finding(name, OK, value)


def note(name: str, value: str, why: str, to_type: str) -> Finding:
    """Something that works less well than it could."""
    return Finding(name, NOTE, value, why, to_type)


def missing(name: str, value: str, why: str, to_type: str) -> Finding:
    """Something that is needed, and does not exist."""
    return Finding(name, MISSING, value, why, to_type)
