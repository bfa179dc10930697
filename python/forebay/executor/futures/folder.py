"""The directory of an executor's sockets, which does not outlive its program."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile

__all__ = ["Folder"]

PREFIX = "forebay-keeper-"
"""As in crates/pool/src/keeper/scratch.rs: a keeper that starts removes every directory of that
name whose lock nobody holds."""


class Folder:
    """A private directory, removed by `remove`, or by the next keeper if this program is killed.

    Attributes:
        path: its path.
    """

    __slots__ = ("_lock", "path")

    def __init__(self) -> None:
        name = f"{PREFIX}{os.getpid()}-executor-{secrets.token_hex(4)}"
        base = tempfile.gettempdir()
        self.path = os.path.join(base, name)
        # Under another name until it is locked, so that no keeper takes it for a dead program's.
        unlocked = os.path.join(base, f".{name}")
        os.mkdir(unlocked, 0o700)
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unlocked, self.path)

    def remove(self) -> None:
        """Remove it with all that is in it. Once."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
