"""Running a test's cells in a kernel of its own, and what that kernel owns."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.notebooks.kernel import Kernel, kernel

GONE_S = 10.0
POLL_S = 0.02


def in_kernel(directory: Path, cells: Callable[[Kernel], Awaitable[None]]) -> None:
    """Run `cells` with a new kernel in a directory; the kernel has ended when this returns."""

    async def run() -> None:
        async with kernel(directory) as started:
            await cells(started)

    asyncio.run(run())


def owned_by(pid: int) -> set[int]:
    """The processes below a kernel."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found |= {child, *owned_by(child)}
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_gone(pids: set[int]) -> set[int]:
    """Wait until these processes have ended; those that have not."""
    deadline = time.monotonic() + GONE_S
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


def directories_in(directory: str) -> list[str]:
    """Directories of keepers and executors."""
    return [name for name in os.listdir(directory) if "forebay-keeper-" in name]
