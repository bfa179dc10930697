"""What a process and everything below it use, read from /proc."""

from __future__ import annotations

import os
import select
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, nearest first; zombies included."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, _read(task).split()):
            found += [child, *descendants(child)]
    return found


def tree(pid: int | None = None) -> list[int]:
    """A process, by default this one, and everything below it."""
    root = os.getpid() if pid is None else pid
    return [root, *descendants(root)]


def wait_for_end(pidfd: int) -> None:
    """Wait until a process, child or not, has ended, and close its pidfd."""
    select.select([pidfd], [], [])
    os.close(pidfd)


def cpu_ns(pids: list[int]) -> int:
    """Nanoseconds that all threads of these processes have run."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(_read(path).partition(" ")[0] or 0)
    return total


def tree_cpu_ns() -> int:
    """Nanoseconds that this process and everything below it have used, ended processes included.

    An ended one counts once its parent has waited for it. The kernel tells it in clock ticks.
    """
    ticks = 0
    for pid in tree():
        # Behind the name, which may hold anything: user, system, and those of children waited for.
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def memory_bytes(pids: list[int]) -> int:
    """Proportional set size of these processes together: shared pages are counted once."""
    total = 0
    for pid in pids:
        for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def private_bytes(pid: int) -> int:
    """Bytes of a process that it shares with no other."""
    lines = _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""  # it ended meanwhile
