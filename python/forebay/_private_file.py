"""Small files that no other user may read: read only if that holds, and replaced in one step."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from forebay._runtime_directory import make_private, open_private
from forebay.errors import ConfigError

__all__ = ["alone", "read_private", "write_private"]


def read_private(path: Path, most_bytes: int) -> bytes:
    """The content of a file of this user's that is closed to others.

    Raises:
        FileNotFoundError: there is none.
        ConfigError: it is open to others, another user's, a link, too long, or unreadable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            _check_owner(path, os.fstat(descriptor))
            content = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > most_bytes:
        raise ConfigError(f"{path} has more than {most_bytes} bytes; it is no file of ours")
    return content


def _check_owner(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} is no file; move it away")
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {found.st_uid} and you are user {os.geteuid()}; remove it, "
            "and make it again"
        )
    if mode & 0o077:
        raise ConfigError(
            f"{path} is open to others (mode {mode:04o}); type: chmod 600 {path}, and replace what "
            "is in it, since others may have read that"
        )


def write_private(path: Path, content: bytes) -> None:
    """Replace a file, with mode 0600; who reads meanwhile has the old one or the new one, whole.

    Raises:
        ConfigError: it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(fresh, "wb", opener=_open_fresh) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}; make room, or correct its directory"
        ) from error


def _open_fresh(path: str, flags: int) -> int:
    """Whatever a killed process left under that name is replaced, and no link is followed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return open_private(path, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Be the only one who changes a file, by a lock beside it; its directory is made.

    Raises:
        ConfigError: the directory is not this user's alone, or the lock cannot be made.
    """
    make_private(path.parent)
    try:
        lock = open(path.with_name(f"{path.name}.lock"), "a", opener=open_private)  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"{path} cannot be locked: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
