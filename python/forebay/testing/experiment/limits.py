"""Faults of limits: a process that has no descriptor left, a control group without memory."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path
from typing import Final

from forebay.testing import _process
from forebay.testing._targets import Targets
from forebay.testing.experiment.injector import Injected
from forebay.testing.experiment.schedule import Planned

__all__ = ["MemoryGroup", "MemoryLimit", "NoDescriptors"]

ROOT: Final = Path("/sys/fs/cgroup")
ROOM_BYTES: Final = 8_000_000
"""Beyond what is used, when the limit comes: less than the next request of `grow` needs."""

EMPTY_S: Final = 5.0


class NoDescriptors:
    """Lets one of some processes open nothing more for a while, by its RLIMIT_NOFILE.

    Args:
        targets: which.
    """

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    def reason_not(self) -> str | None:
        """As of every injector."""
        return None

    def inject(self, planned: Planned) -> Injected | None:
        """Lower the limit of one to what it has open."""
        found = self._targets.now()
        if not found:
            return None
        process = found[int(planned.choice * len(found))]
        pidfd = _process.opened(process)
        if pidfd is None:
            return None
        try:
            # Below the greatest number that is open, new ones may fill gaps: few, and soon.
            open_ = len(os.listdir(f"/proc/{process.pid}/fd"))
            before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (open_, before[1]))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            os.close(pidfd)
            return None

        def undo() -> None:
            if not _process.ended(pidfd):  # else its number may be another's
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
            os.close(pidfd)

        return Injected(f"{process.kind} {process.pid} has {open_} for {planned.lasts:.1f} s", undo)


class MemoryGroup:
    """A control group for the server of the experiment, of either version.

    Attributes:
        procs: the file that a process enters it by; None: there is no group.
        refusal: why there is none.
    """

    def __init__(self) -> None:
        self.procs: Path | None = None
        self.refusal: str | None = None
        unified = (ROOT / "cgroup.controllers").exists()
        self._group = (ROOT if unified else ROOT / "memory") / f"forebay-chaos-{os.getpid()}"
        self._limit = self._group / ("memory.max" if unified else "memory.limit_in_bytes")
        self._used = self._group / ("memory.current" if unified else "memory.usage_in_bytes")
        self._none = "max" if unified else "-1"
        try:
            self._group.mkdir()
        except OSError as error:
            self.refusal = f"no control group can be made in {self._group.parent}: {error.strerror}"
            return
        if self._limit.exists():
            self.procs = self._group / "cgroup.procs"
        else:
            self.refusal = f"{self._group.parent} has no memory controller"

    def tighten(self) -> int:
        """Limit it to a little more than what is used; returns the limit."""
        limit = int(self._used.read_text()) + ROOM_BYTES
        self._limit.write_text(str(limit))
        return limit

    def loosen(self) -> None:
        """Limit it no more."""
        self._limit.write_text(self._none)

    def close(self) -> None:
        """Remove the group; its processes have ended, or are about to."""
        deadline = time.monotonic() + EMPTY_S
        while self._group.exists():
            try:
                self._group.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


class MemoryLimit:
    """Leaves the server and all below it no more memory than they use, for a while.

    Args:
        group: that of the server.
    """

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group

    def reason_not(self) -> str | None:
        """As of every injector."""
        return self._group.refusal

    def inject(self, planned: Planned) -> Injected | None:
        """Set the limit."""
        try:
            limit = self._group.tighten()
        except OSError:  # version 1 refuses a limit below what cannot be reclaimed: busy
            return None
        return Injected(f"{limit / 1e6:.0f} MB for {planned.lasts:.1f} s", self._group.loosen)
