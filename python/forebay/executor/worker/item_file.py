"""The file of one run's items, open as long as there is room for that; else opened for each use."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from forebay.executor.wire.items import first_head, head_of
from forebay.executor.worker.kept import open_new

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OPEN_MAX", "ItemFile"]

OPEN_MAX: Final = 256
"""Files that one worker keeps open; of further generators they are opened for each item."""


class ItemFile:
    """A file without items and of the next epoch, in the place of that of the run before.

    Args:
        directory: of such files.
        id: of the request.
        attempt: of the run.
        stays_open: otherwise it is opened for each use.

    Raises:
        OSError: it cannot be made; nothing of it is left.

    Attributes:
        descriptor: while it is open.
    """

    __slots__ = ("_directory", "_identity", "_path", "descriptor")

    def __init__(self, directory: str, id: str, attempt: int, *, stays_open: bool) -> None:
        self._directory = directory
        self._path = os.path.join(directory, id)
        descriptor, found = _begin(self._path, attempt)
        self._identity = found.st_dev, found.st_ino
        self.descriptor: int | None = descriptor
        if not stays_open:
            self.close()

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The file, for one use.

        Raises:
            OSError: it cannot be opened, or another run has put its own there.
        """
        if self.descriptor is not None:
            yield self.descriptor
            return
        descriptor = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != self._identity:
                raise OSError("another run of this request has begun, in another worker")
            yield descriptor
        finally:
            os.close(descriptor)

    def sync(self) -> None:
        """Have it on the disk, with its name. Any thread.

        Raises:
            OSError: that failed.
        """
        with self.opened() as descriptor:
            os.fsync(descriptor)
        folder = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> bool:
        """Close it; it stays where it is. Idempotent: whether it was open."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def _begin(path: str, attempt: int) -> tuple[int, os.stat_result]:
    """The file, and what the system says of it."""
    before = head_of(path)
    new = f"{path}.{attempt}.new"
    descriptor = open_new(new)
    try:
        os.pwrite(descriptor, first_head(1 if before is None else before.epoch + 1), 0)
        os.rename(new, path)
        return descriptor, os.fstat(descriptor)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
