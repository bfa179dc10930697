"""What faults need of the machine before the server is started."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from forebay.testing.experiment.clock import WallClock
from forebay.testing.experiment.disk import SmallDisk
from forebay.testing.experiment.limits import MemoryGroup

__all__ = ["Ground", "prepared"]

SHORT_CHARS: Final = 40
"""A longer directory leaves no room for the path of a socket."""


class Ground:
    """The directory of an experiment, and what lies in it.

    Args:
        directory: of the experiment.
        faults: the names of those that are wanted; nothing is made for others.

    Attributes:
        directory: of the experiment.
        scratch: where programs make temporary files.
        sockets: where servers have their sockets and notices.
        disk, clock, group: None: not wanted.
    """

    def __init__(self, directory: Path, faults: Collection[str]) -> None:
        self.directory = directory
        self.scratch = directory / "scratch"
        self.sockets = directory / "run" / "forebay"
        for path in (directory / "disk", self.scratch, directory / "run", self.sockets):
            path.mkdir(mode=0o700)
        # The disk first: it needs a process with one thread.
        self.disk = SmallDisk(directory / "disk") if "full-disk" in faults else None
        self.clock = WallClock(directory) if "clock-jump" in faults else None
        self.group = MemoryGroup() if "memory-limit" in faults else None

    def close(self) -> None:
        """Give back what is not in the directory; no process of the experiment runs any more."""
        if self.group is not None:
            self.group.close()
        if self.disk is not None:
            self.disk.close()


@contextlib.contextmanager
def prepared(faults: Collection[str]) -> Iterator[Ground]:
    """A ground in a new directory, which is removed with everything in it."""
    usual = tempfile.gettempdir()
    root = usual if len(usual) <= SHORT_CHARS else "/tmp"
    directory = Path(tempfile.mkdtemp(prefix="fb-chaos-", dir=root))
    try:
        with contextlib.closing(Ground(directory, faults)) as ground:
            yield ground
    finally:
        shutil.rmtree(directory, ignore_errors=True)
