"""A control group whose processes have so much memory, page cache included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
UNIFIED = (ROOT / "cgroup.controllers").exists()


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Path | None]:
    """A new group, removed at the end; None where none can be made. Source: cgroups(7)."""
    parent = ROOT if UNIFIED else ROOT / "memory"
    group = parent / f"forebay-replay-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        name = "memory.max" if UNIFIED else "memory.limit_in_bytes"
        (group / name).write_text(str(limit_bytes))
        yield group
    finally:
        group.rmdir()


def enter(group: Path) -> None:
    """Move this process in."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
