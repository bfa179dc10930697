"""The current directory, which may have been removed, or lie where this user may not go."""

from __future__ import annotations

import os

from forebay.errors import ConfigError

__all__ = ["path_to_enter", "path_to_tell_apart", "working_directory"]


def working_directory() -> str:
    """The path of the current directory.

    Raises:
        ConfigError: it has none any more.
    """
    try:
        return os.getcwd()
    except OSError as error:
        raise ConfigError(
            f"the current directory has no path ({error.strerror}): it was removed, or is out of"
            " this user's reach; change to another one, or give absolute paths"
        ) from None


def path_to_tell_apart() -> str:
    """The path of the current directory, "" where it has none; it may not be one to enter."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def path_to_enter() -> str:
    """The path by which a child enters the current directory; "": it can only inherit it.

    The current directory may be one that the process cannot enter, as after `sudo -u`.
    """
    path = path_to_tell_apart()
    return path if path and os.access(path, os.X_OK, effective_ids=True) else ""
