"""Which file of settings a directory means, and whose file is believed.

A file of settings names code that is run and sockets that arguments are sent to, so one that
another user could have put there is not believed (as git does not, CVE-2022-24765). A sticky
directory such as /tmp does not help: whoever may write into it may be the first to make the file.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["nearest", "users"]

MENTION: Final = re.compile(rb"^\s*\[\s*tool\s*\.\s*forebay\s*[\].]", re.MULTILINE)
"""What a line of a pyproject.toml that has settings for us begins with."""

_logger = logging.getLogger("forebay.configuration")
_told: set[Path] = set()
"""Files that this process has warned of: once is enough."""


def nearest(start: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path | None:
    """The file that decides in a directory: the one that is named, or one found upwards.

    The search ends at a directory that this user cannot look into, and at a file that other users
    could have written, of which it warns. A file that is named is believed.

    Args:
        start: where the search begins; default: the current directory.
        environment: `FOREBAY_CONFIG` in it names a file.
    """
    named = environment.get("FOREBAY_CONFIG")
    if named:
        path = Path(named).expanduser()
        return path if path.is_absolute() else (_directory(start) or Path()) / path
    directory = _directory(start)
    if directory is None:
        return None
    for place in (directory, *directory.parents):
        try:
            found = _in(place)
        except OSError:
            return None  # what lies there or above it was not meant for this user
        if found is not None:
            return found if _is_believed(found) else None
    return None


def users(environment: Mapping[str, str]) -> Path | None:
    """The file of the user, in the directory where users keep their settings."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = Path(base) / "forebay" / "forebay.toml"
    try:
        return path if path.is_file() else None
    except OSError:
        return None  # another user's home, as for a program that has put off its rights


def _directory(start: str | os.PathLike[str] | None) -> Path | None:
    """Where the search begins; None: the current directory has been removed, or is unreachable."""
    try:
        return Path(os.getcwd() if start is None else start).absolute()
    except OSError:
        return None


def _in(directory: Path) -> Path | None:
    """The file of settings in a directory.

    Raises:
        OSError: this user may not look into it.
    """
    if _is_file(directory / "forebay.toml"):
        return directory / "forebay.toml"
    project = directory / "pyproject.toml"
    return project if _is_file(project) and _mentions_us(project) else None


def _mentions_us(project: Path) -> bool:
    """Whether a pyproject.toml has settings of ours; mistakes in others are not ours to tell."""
    return MENTION.search(project.read_bytes()) is not None


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_believed(path: Path) -> bool:
    """Whether nobody but this user and root can have written it; otherwise it is told once."""
    try:
        complaint = _complaint(path.parent, "its directory ") or _complaint(path, "it ")
    except OSError as error:
        complaint = f"it cannot be looked at ({error.strerror})"
    if complaint is None:
        return True
    if path not in _told:
        _told.add(path)
        _logger.warning(
            "forebay: settings in %s are not used, since %s; no directory above it is looked at; "
            "to use them all the same: FOREBAY_CONFIG=%s",
            path,
            complaint,
            path,
        )
    return False


def _complaint(path: Path, name: str) -> str | None:
    """Why another user may have written a file or a directory; None: nobody may."""
    found, user = os.stat(path), os.geteuid()
    if found.st_uid not in (user, 0):
        return f"{name}belongs to user {found.st_uid} and you are user {user}"
    mode = f"mode {stat.S_IMODE(found.st_mode):04o}; type: chmod go-w {path}"
    if found.st_mode & stat.S_IWOTH:
        return f"{name}may be written by every user ({mode})"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid, user):
        return f"{name}may be written by group {found.st_gid} ({mode})"
    return None


def _is_own_group(group: int, user: int) -> bool:
    """Whether a group is this user's alone, as most systems give each user one of his name."""
    import grp
    import pwd

    try:
        name, members = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}
