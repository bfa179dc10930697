"""Errors of the system, as the user of a backup reads them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import BrokenError, ConfigError, Error

__all__ = ["check_owner", "explained", "explaining"]


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
