"""The directory of whoever has the lease of this service.

The service alone looks after it: it answers one call after another, so that it knows without a race
when the first call of a lease has come. Then it looks whether the lease before has used the
directory. That is one system call, because an unused one still has the time of change that it was
made with, the epoch (a time that was merely remembered could be equal after a change: the clock of
a file system ticks a few hundred times a second). A used one is put aside for the keeper to remove
(see `scratch.rs`), and a new one takes its name, so that `TMPDIR` stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

NAME = "lease"
"""The directory's name in that of its service, where that has other things in it."""

_home = ""
"""The directory of this service; "" where this is none."""

_before: str | None = None
"""`TMPDIR` as it was when this process was no service yet."""


def move_in(directory: str) -> None:
    """This process, or the one that is forked next, is a service that has a directory."""
    global _home, _before
    if not _home:
        _before = os.environ.get("TMPDIR")
    _home = directory
    _use(directory)


def outside(environment: dict[str, str]) -> dict[str, str]:
    """An environment of this process without what is a service's own.

    What a service has started elsewhere must not depend on which service it was, nor outlive its
    directory there.
    """
    if not _home:
        return environment
    own = {name: value for name, value in environment.items() if name != "TMPDIR"}
    return own if _before is None else {**own, "TMPDIR": _before}


def _use(directory: str) -> None:
    """Have temporary files made in `directory`, here and in programs that are started."""
    os.environ["TMPDIR"] = directory
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = directory


class LeaseDirectory:
    """A directory that is empty when a lease begins.

    A service keeps one for all its leases.
    A program cannot look after its own: there each lease does, for what its holder puts there.

    Attributes:
        generation: of the lease that it belongs to; -1 before the first.
        path: its path, "" before the service was made.
    """

    __slots__ = ("_ended", "_enters", "_service", "_shared", "generation", "path")

    def __init__(self, service: str = "") -> None:
        """`service`: the directory of the program that this one is for."""
        self.path = service and os.path.join(service, NAME)
        self.generation = -1
        self._service = service
        self._ended = 0
        self._enters = False
        self._shared = False

    def found(self, *, enters: bool, shared: bool = False) -> None:
        """The service was made: what it makes from now on is a lease's.

        What its constructor made stays where it is for the life of the service; only then leases
        have another directory, in that one.
        `enters`: leases also find it as the current directory.
        `shared`: several leases have it at once, so that only a reset, which comes with the last of
        them, empties it.
        """
        if not _home:
            return
        self._service = self.path = _home
        self._enters = enters
        self._shared = shared
        self.generation = -1
        if self._is_used():
            self.path = os.path.join(_home, NAME)
            self._make()
            _use(self.path)
        elif enters:
            os.chdir(self.path)

    def begin(self, generation: int) -> None:
        """The first call of a lease has come. Cost: one system call where it was not used."""
        self.generation = generation
        if self._shared:
            return
        if self.path:
            self.end()
        if self._enters:
            os.chdir(self.path)

    def end(self) -> None:
        """The lease before has ended: make the directory a new one, unless it was not used."""
        if self._is_used():
            self._ended += 1
            keeper, number = os.path.split(self._service)
            ended = f"ended-{number}-{self.generation}-{self._ended}"
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path, os.path.join(keeper, ended))
            self._make()

    def _is_used(self) -> bool:
        try:
            return os.stat(self.path).st_mtime_ns != 0
        except FileNotFoundError:  # it was removed or renamed
            return True

    def _make(self) -> None:
        os.mkdir(self.path, 0o700)
        os.utime(self.path, ns=(0, 0))
        if self._enters:
            os.chdir(self.path)
