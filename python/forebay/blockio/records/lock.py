"""The lock of a record file that a process appends to."""

from __future__ import annotations

import fcntl
import os
from io import FileIO

from forebay.errors import BusyError

__all__ = ["holder", "lock", "unlock"]


def lock(file: FileIO, path: str) -> None:
    """Take the lock, until `unlock` or until no process has the file open any more.

    Raises:
        BusyError: another file object or process has it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = holder(file.fileno())
        who = "another RecordFile" if pid is None else f"a RecordFile of process {pid}"
        raise BusyError(
            f"record file {path} is being appended to by {who}; close that one, or read with"
            " mode='r'"
        ) from error


def unlock(file: FileIO) -> None:
    """Release it, also for forked children, which share it."""
    fcntl.flock(file, fcntl.LOCK_UN)


def holder(descriptor: int) -> int | None:
    """The process that took the lock, as far as the kernel reports it.

    Trying the lock would disturb others.

    Source: proc_locks(5).
    """
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with open("/proc/locks") as locks:
        for line in locks:
            words = line.split()
            if words[1] == "FLOCK" and device in words:
                pid = int(words[4])
                return pid if pid > 0 else None
    return None
