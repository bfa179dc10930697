"""The directory of the current lease of this service.

Only the service manages it: it answers one call after another, so it knows without a race when the
first call of a lease has come. Then it checks whether the last lease used the directory. That takes
one system call, because an unused directory still has the time of change that it was made with, the
epoch. (The time at which it was made could still be there after a change, since the clock of a file
system ticks a few hundred times a second.) A used one is renamed for the keeper to remove (see
`scratch.rs`), and a new one gets its name, so that `TMPDIR` stays the same.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

NAME = "lease"
"""The name of a lease's directory in that of its service, if the constructor used the latter."""

_home = ""
"""The directory of this service; "" if this process is not a service."""

_before: str | None = None
"""`TMPDIR` before this process became a service."""


def move_in(directory: str) -> None:
    """Give a directory to this process, or to the service that is forked next."""
    global _home, _before
    if not _home:
        _before = os.environ.get("TMPDIR")
    _home = directory
    _use(directory)


def outside(environment: dict[str, str]) -> dict[str, str]:
    """The environment of this process without the `TMPDIR` of a service.

    A process that a service has another process start must not depend on that directory, which it
    may outlive.
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

    A Python service has one object for all its leases.
    A program cannot manage its directory, so each of its leases does.

    Attributes:
        generation: of the lease that it belongs to; -1 before the first.
        path: its path, "" before the service was made.
    """

    __slots__ = ("_ended", "_enters", "_service", "generation", "path")

    def __init__(self, service: str = "") -> None:
        """`service`: the directory of the program that this one is for."""
        self.path = service and os.path.join(service, NAME)
        self.generation = -1
        self._service = service
        self._ended = 0
        self._enters = False

    def found(self, *, enters: bool) -> None:
        """Give the directory to leases, because the service has been made.

        Files of its constructor stay where they are for the life of the service. If there are any,
        leases get another directory, inside that one.
        `enters`: it is also the current directory of each lease.
        """
        if not _home:
            return
        self._service = self.path = _home
        self._enters = enters
        self.generation = -1
        if self._is_used():
            self.path = os.path.join(_home, NAME)
            self._make()
            _use(self.path)
        elif enters:
            os.chdir(self.path)

    def begin(self, generation: int) -> None:
        """Prepare for the first call of a lease, or of several that share the service.

        Cost: one system call if it was not used.
        """
        self.generation = generation
        if self.path:
            self.end()
        if self._enters:
            os.chdir(self.path)

    def end(self) -> None:
        """Replace the directory by a new one if the last lease used it."""
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
