"""What makes two services interchangeable: content, not names.

In a key: the executable itself (path, device, inode, size, modification time) or the Python object
(module, qualified name, version of its source file), ordered arguments, the environment that
matters, the working directory, the user.
Not in it: how long anybody waits.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from forebay.pool.service.directory import outside

IGNORED_VARIABLES = frozenset(
    {
        "COLORTERM",
        "COLUMNS",
        "DBUS_SESSION_BUS_ADDRESS",
        "HISTFILE",
        "HISTSIZE",
        "INVOCATION_ID",
        "JOURNAL_STREAM",
        "JPY_PARENT_PID",
        "JPY_SESSION_NAME",
        "LINES",
        "LS_COLORS",
        "MAKEFLAGS",
        "MAKELEVEL",
        "MFLAGS",
        "OLDPWD",
        "PROMPT_COMMAND",
        "PS1",
        "PS2",
        "PWD",
        "PYTEST_CURRENT_TEST",
        "SHLVL",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "STY",
        "TERM",
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "WINDOWID",
        "XDG_SESSION_ID",
        "_",
    }
)
"""They differ between terminals and sessions, and change nothing in a service."""


_seen: tuple[dict[str, str], frozenset[tuple[str, str]]] = ({}, frozenset())
"""The environment when it was last read, and the part of it that matters."""


def environment_that_matters() -> frozenset[tuple[str, str]]:
    """This process's environment without variables that only distinguish sessions.

    The same object as long as nothing changed. Cost: 1 us, where `os.environ` is as in CPython.
    """
    global _seen
    raw: Any = getattr(os.environ, "_data", None) or dict(os.environ)
    before, matters = _seen
    if raw != before:
        kept = outside(dict(os.environ)).items()
        matters = frozenset(item for item in kept if item[0] not in IGNORED_VARIABLES)
        _seen = dict(raw), matters
    return matters


def executable(path: str) -> tuple[Any, ...]:
    """An executable: its path, and the identity of the file there now."""
    file = os.stat(path)
    return path, file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def defined(thing: Any) -> tuple[Any, ...]:
    """A class or function: its names and the version of its source, if its names lead to it.

    One that was made inside a function, or typed into a session, equals only itself.
    """
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    version = _version(module) if isinstance(module, str) else None
    if name is None or version is None or "<" in name:
        return (thing,)
    return module, name, *version


@functools.cache
def _version(module: str) -> tuple[str, int, int] | None:
    """The source file of a module, with size and modification time at the first look.

    Read once in the life of the process, because the imported module does not change either.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return None
    try:
        file = os.stat(path)
    except OSError:  # in an archive, or gone since
        return None
    return os.path.abspath(path), file.st_size, file.st_mtime_ns
