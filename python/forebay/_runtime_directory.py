"""The directory of this user's sockets, which other users cannot enter."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from forebay.errors import ConfigError

__all__ = ["make_private", "open_private", "runtime_root", "temporary_root"]


def runtime_root() -> Path:
    """The directory of the sockets of this user's servers; does not make it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "forebay" if runtime else temporary_root()


def temporary_root() -> Path:
    """The same where the system has no such directory, or one with too long a path."""
    return Path("/tmp") / f"forebay-{os.geteuid()}"


def open_private(path: str, flags: int) -> int:
    """An `opener` of files that other users cannot read or write, whatever the umask is."""
    return os.open(path, flags, 0o600)


def make_private(directory: Path) -> None:
    """Make a directory for this user alone (0700), or check that it is one.

    Raises:
        ConfigError: it is another user's, open to others, or no directory.
    """
    try:
        # Its parents too: a user who may write to one can replace the directory.
        missing = [one for one in (directory, *directory.parents) if not os.path.lexists(one)]
        for one in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(one, 0o700)
        found = os.lstat(directory)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be made: {error.strerror}; set FOREBAY_STATE_DIR and "
            "XDG_RUNTIME_DIR to directories of yours"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{directory} is no directory; move it away")
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{directory} belongs to user {found.st_uid} and you are user {os.geteuid()}; "
            "set XDG_RUNTIME_DIR to a directory of yours"
        )
    if found.st_mode & 0o077:
        raise ConfigError(
            f"{directory} is open to others (mode {stat.S_IMODE(found.st_mode):04o}); "
            f"type: chmod 700 {directory}"
        )
