"""Processes as /proc shows them, signalled without a mistaken identity."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path
from typing import NamedTuple

KEEPER, SERVICE = "fb keeper", "fb service"
"""Names that keepers and Python services carry in /proc/<pid>/comm."""

TEMPLATE_MODULE = "forebay.pool.service.template"
"""Stands in the command line of a template, and of the services that it forks."""


class Process(NamedTuple):
    """One process; its start time distinguishes it from a later one with the same number.

    Attributes:
        pid: its number.
        started: clock ticks from the machine's start until its own.
        kind: as what it was found.
    """

    pid: int
    started: int
    kind: str


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state on; None for one that ended or is a zombie."""
    fields = text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return None if not fields or fields[0] in "ZX" else fields


def parent(pid: int) -> int | None:
    """The parent of a running process."""
    fields = stat(pid)
    return None if fields is None else int(fields[1])


def name(pid: int) -> str:
    """What a process calls itself; empty when it has ended."""
    return text(f"/proc/{pid}/comm").rstrip("\n")


def is_template(pid: int) -> bool:
    """Whether a keeper's child is a template, even one that still starts; others are services."""
    return name(pid) != SERVICE and TEMPLATE_MODULE in text(f"/proc/{pid}/cmdline")


def children(pid: int) -> list[int]:
    """The running children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, text(f"/proc/{pid}/task/{task}/children").split())
    return [child for child in found if stat(child) is not None]


def descendants(pid: int) -> list[int]:
    """Every running process below one."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def described(pid: int, kind: str) -> Process | None:
    """A running process; None where it has ended."""
    fields = stat(pid)
    return None if fields is None else Process(pid, int(fields[19]), kind)


def opened(process: Process) -> int | None:
    """A pidfd of exactly this process, the caller's to close; None where it has ended."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    # The number may have been given to another process before it was opened.
    if described(process.pid, process.kind) == process:
        return pidfd
    os.close(pidfd)
    return None


def send(pidfd: int, number: signal.Signals) -> bool:
    """Signal a process; whether it was still there."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def ended(pidfd: int) -> bool:
    """Whether a process has ended."""
    return bool(select.select([pidfd], [], [], 0)[0])


def text(path: str) -> str:
    """A file of /proc, empty where its process has ended or is another user's."""
    try:
        return Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
