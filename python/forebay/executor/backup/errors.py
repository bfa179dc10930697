"""Errors of the system, as the user of a backup reads them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import BrokenError, ConfigError, Error, LimitError

__all__ = ["check_owner", "does_not_fit", "explained", "explaining", "free_bytes", "is_full"]


@contextlib.contextmanager
def explaining(source: Path) -> Iterator[None]:
    """Turn errors of the system into ours; the arguments are those of `explained`.

    Raises:
        ConfigError: this user has no right to a file.
        BrokenError: a file cannot be read or written for another reason.
    """
    try:
        yield
    except OSError as error:
        raise explained(error, source) from error


def explained(error: OSError, source: Path) -> Error:
    """The error that a user is told instead.

    Args:
        error: of a file of `source`, or of the directory that is written to.
        source: what is read: a state directory, or a backup.
    """
    path = Path(os.fsdecode(error.filename or source))
    told = f"{path}: {error.strerror or error}"
    if not isinstance(error, PermissionError):
        return BrokenError(f"{told}; look at its disk, then begin again", delivered="no")
    if path != source and source not in path.parents:
        return ConfigError(f"{told}; name a directory of yours")
    return ConfigError(f"{told}; {_as_owner(path)}")


def is_full(error: OSError | Error) -> bool:
    """Whether an error of the system, or one of ours that has such a cause, is of a full disk."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
    )


def free_bytes(folder: Path) -> int:
    """What is free on its disk for this user."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def does_not_fit(name: str, needed: int, target: Path, free: int) -> LimitError:
    """The error of a full disk.

    Args:
        name: what has no room there.
        needed: its bytes.
        target: DIR.
        free: bytes of its disk.
    """
    return LimitError(
        f"{name} needs {needed} bytes and does not fit: {free} bytes are free on the disk of "
        f"{target}; make room, or name a directory of another disk",
        limit=free,
        value=needed,
    )


def check_owner(state: Path) -> None:
    """Refuse a state directory of another user, root included.

    The copy would be root's, so that its server could not start from it, and results are copied
    from files of this user alone.

    Raises:
        ConfigError: it is another user's.
        OSError: it cannot be looked at.
    """
    found, mine = os.stat(state).st_uid, os.geteuid()
    if found != mine:
        raise ConfigError(
            f"{state} belongs to {_name(found)} and you are {_name(mine)}; {_as_owner(state)}"
        )


def _as_owner(path: Path) -> str:
    """What to type to become the owner of a file, which may be out of reach."""
    for one in (path, *path.parents):
        with contextlib.suppress(OSError):
            owner = one.lstat().st_uid
            break
    else:
        owner = 0
    if owner == os.geteuid():
        return f"give yourself the right to read it: chmod u+rX {path}"
    return f"run it as the user of the server: sudo -u {_name(owner)} forebay backup ..."


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"#{user}"  # as sudo takes it
