"""What a check of `forebay doctor` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["MISSING", "NOTE", "OK", "Finding", "own_cgroup"]

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


def own_cgroup() -> Path | None:
    """The directory of this process's cgroup in the unified hierarchy, where there is one."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, place = line.split(":", 2)
        group = Path("/sys/fs/cgroup") / place.lstrip("/")
        if number == "0" and (group / "cgroup.procs").exists():
            return group
    return None
