"""What a process holds, before and after a test: descriptors, children, threads, blocked signals.

A descriptor is told by its number together with what it points at, so that one which was closed
and another which was opened under its number are not taken for the same.
Children of children count; a zombie counts only while it is our own to reap, since a process
orphaned to process 1 may stand there for seconds.
Signals that this thread blocks are blocked in every program that it starts.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from forebay._core import sweep_lent

SETTLE_S = 2.0  # a thread or child that was told to end gets this long to do so
POLL_S = 0.01


@dataclass(frozen=True)
class Holdings:
    """Everything that the process held at one moment; each entry maps a key to its description."""

    descriptors: dict[str, str]
    children: dict[str, str]
    threads: dict[str, str]
    blocked: dict[str, str]

    @classmethod
    def now(cls) -> Holdings:
        """Read them from /proc."""
        sweep_lent()  # what a peer read when its connection ended, and has given back since
        return cls(_descriptors(), _children(os.getpid()), _threads(), _blocked())

    def leaks_until(self, now: Callable[[], Holdings]) -> list[str]:
        """Describe what was added since; waits up to `SETTLE_S` for it to go."""
        deadline = time.monotonic() + SETTLE_S
        leaks = self._added(now())
        while leaks and time.monotonic() < deadline:
            # An object in a cycle closes its descriptor only now, and a thread that ends may have
            # held it until a moment ago.
            gc.collect()
            leaks = self._added(now())
            if leaks:
                time.sleep(POLL_S)
        return leaks

    def _added(self, later: Holdings) -> list[str]:
        kinds = (
            ("descriptor", self.descriptors, later.descriptors),
            ("child process", self.children, later.children),
            ("thread", self.threads, later.threads),
            ("blocked signal", self.blocked, later.blocked),
        )
        return [
            f"{kind} {key}: {after[key]}"
            for kind, before, after in kinds
            for key in after
            if after[key] != before.get(key)
        ]


def _descriptors() -> dict[str, str]:
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:  # the one that iterdir itself used
            continue
        found[entry.name] = target
    return found


def _threads() -> dict[str, str]:
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if not name.startswith("iou-"):  # the kernel's, for a ring; they end when it wants
            found[task.name] = name
    return found


def _blocked() -> dict[str, str]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return {str(int(number)): signal.strsignal(number) or "" for number in mask}


def _children(pid: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(task).split():
            status = _read(Path(f"/proc/{child}/stat"))
            zombie = status.rpartition(")")[2].split()[:1] == ["Z"]
            if not status or (zombie and pid != os.getpid()):
                continue
            command = _read(Path(f"/proc/{child}/cmdline")).replace("\0", " ").strip()
            found[child] = "a zombie: nobody waited for it" if zombie else command
            found |= _children(int(child))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
