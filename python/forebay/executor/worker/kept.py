"""Files in which a worker keeps what a request gave: made anew, or an error that says why not."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from forebay._failures import megabytes

__all__ = ["not_kept", "open_new"]

_FILE_MODE: Final = 0o600


def open_new(path: str) -> int:
    """A new file; what an earlier try of the same run left there is removed, not written to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _FILE_MODE)
    except FileExistsError:
        os.unlink(path)
        descriptor = os.open(path, flags, _FILE_MODE)
    os.fchmod(descriptor, _FILE_MODE)  # whatever the umask
    return descriptor


def not_kept(what: str, part: str, directory: str, error: OSError) -> str:
    """Why something cannot be written: what, where, how much there is, and what to do.

    Args:
        what: the request for messages.
        part: of it, with its size.
        directory: where it was to be.
        error: of the system.
    """
    where = directory
    with contextlib.suppress(OSError):
        there = os.statvfs(directory)
        free = megabytes(there.f_bavail * there.f_frsize)
        of = megabytes(there.f_blocks * there.f_frsize)
        where += f" (on the file system {_mount_of(directory)}, {free} free of {of})"
    told = f"{what}: {part} cannot be kept in {where}: {error.strerror or error}"
    if error.errno == errno.EMFILE:
        return f"{told}; run fewer at once, or raise the limit of open files (ulimit -n)"
    return (
        f"{told}; free some of the disk, remove requests with forebay prune, or give the server a"
        " larger disk by FOREBAY_STATE_DIR"
    )


def _mount_of(path: str) -> str:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
