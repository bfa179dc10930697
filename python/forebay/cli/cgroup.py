"""The control group of this process."""

from __future__ import annotations

from pathlib import Path

__all__ = ["own_cgroup"]


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
