"""Reading records into memory of an arena, as arrays over the blocks that were read."""

from __future__ import annotations

import concurrent.futures
import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from forebay._numpy import Array, np
from forebay.blockio.records.layout import DATA_OFFSET, numbered_checksums
from forebay.blockio.records.open import Opened
from forebay.errors import BlockError, BrokenError, ConfigError, LimitError, StaleError

if TYPE_CHECKING:
    from forebay.blockio import BlockFile, Queue
    from forebay.memory import Arena

__all__ = ["Read", "Reader"]

ARENA_SHARE: Final = 8
"""An arena that a file makes for itself is at most this part of the machine's memory."""

PAGE_ALIGNED_BYTES: Final = 64 << 10
"""From this size on, an arena aligns blocks to pages."""


@dataclass(slots=True, eq=False)
class Read:
    """Records that are read, or soon will be.

    Attributes:
        numbers: which, counted from 0 on, as i8[n].
        block: u1, where their strides go.
        future: of the read; None until it is begun.
    """

    numbers: Array
    block: Array
    future: concurrent.futures.Future[Array] | None = None


class Reader:
    """Reads records of one file. Any thread.

    Args:
        opened: the file, which is opened once more.
        queue: of the reads; None: the process's own.
        arena: for the batches; None: one that is made on first use.
        direct: whether to read with O_DIRECT; None: where stride and file system allow it.
        newest: gives the records appended so far, as far as is known at that moment.
    """

    def __init__(
        self,
        opened: Opened,
        *,
        queue: Queue | None,
        arena: Arena | None,
        direct: bool | None,
        newest: Callable[[], int],
    ) -> None:
        self.layout = opened.layout
        self._path = opened.path
        self._newest = newest
        self._file, self._alignment_bytes = _open_blocks(opened, queue, direct)
        self._arena = arena
        self._owns_arena = arena is None
        self._lock = threading.Lock()

    @property
    def direct(self) -> bool:
        """Whether reads bypass the page cache."""
        return self._alignment_bytes > 1

    def plan(self, numbers: Array) -> Read:
        """Take memory for records.

        Raises:
            LimitError: the arena is full.
        """
        n_bytes = len(numbers) * self.layout.stride_bytes
        spare = self._alignment_bytes if n_bytes < PAGE_ALIGNED_BYTES else 0
        arena = self._get_arena()
        try:
            memory = np.asarray(arena.allocate(n_bytes + spare))
        except LimitError as error:
            raise LimitError(
                f"record file {self._path}: {len(numbers)} records take {n_bytes} bytes of arena"
                f" {arena.name!r}, which has {arena.stats()['live_bytes']} of {error.limit} in use;"
                " drop batches that you no longer need, or give the file a larger arena",
                limit=error.limit,
                value=error.value,
            ) from error
        shift = -_address(memory) % self._alignment_bytes if spare else 0
        return Read(numbers, memory[shift : shift + n_bytes])

    def begin(self, read: Read) -> None:
        """Have it read in the background."""
        offsets = self.layout.offsets(read.numbers)
        read.future = self._file.submit("read_many", offsets, read.block, exact=True)

    def wait(self, read: Read) -> Array:
        """The batch, once it is read; reads it here and now where that was not begun.

        Raises:
            BlockError: a record was not read, or its checksum is wrong.
            StaleError: a record has been overwritten meanwhile.
        """
        if read.future is not None:
            read.future.result()
        elif len(read.numbers):
            self._file.read_many(self.layout.offsets(read.numbers), read.block, exact=True)
        return self.finish(read)

    def finish(self, read: Read) -> Array:
        """The batch of a read that is done; raises as `wait` does."""
        self.check(read.numbers)
        wrong = self.wrong(read)
        if len(wrong):
            index = int(wrong[0])
            raise BlockError(
                f"record file {self._path}: the checksum of record {read.numbers[index]}"
                f" (index {index} of the batch) is wrong; see which others are, with:"
                f" forebay records inspect --verify {self._path}",
                index=index,
                errno=errno.EILSEQ,
            )
        return self.layout.batch(read.block, len(read.numbers))

    def check(self, numbers: Array) -> None:
        """Refuse what may have been overwritten while it was read."""
        if not self.layout.capacity or not len(numbers):
            return
        oldest, appended = int(numbers.min()), self._newest()
        whole = self.layout.first_whole(appended)
        if oldest < whole:
            raise StaleError(
                f"record file {self._path}: record {oldest} has been overwritten, {appended} are"
                f" appended and the file keeps {self.layout.capacity}; refresh(), and ask again"
            )

    def wrong(self, read: Read) -> Array:
        """Which records of a batch have a wrong checksum."""
        if not self.layout.checksums or not len(read.numbers):
            return np.empty(0, np.intp)
        record, stride, n = self.layout.record_bytes, self.layout.stride_bytes, len(read.numbers)
        sums = numbered_checksums(read.block, self.layout, read.numbers)
        stored = np.ndarray(n, "<u4", buffer=read.block, offset=record, strides=(stride,))
        return np.flatnonzero(sums != stored)

    def check_out(self, numbers: Array, out: Array) -> None:
        """Refuse an array that cannot take these records.

        Raises:
            ConfigError: its dtype or shape is another, or it cannot be written.
        """
        shape, base = (len(numbers), *self.layout.dtype.shape), self.layout.dtype.base
        if out.shape != shape or out.dtype != base or not out.flags.writeable:
            raise ConfigError(
                f"record file {self._path}: out is {out.dtype} of shape {out.shape};"
                f" give a writable array of {base} of shape {shape}"
            )

    def into(self, numbers: Array, out: Array) -> Array:
        """Read into the caller's array; straight, where its memory is laid out as the file is."""
        self.check_out(numbers, out)
        packed = self.layout.stride_bytes == self.layout.record_bytes and out.flags.c_contiguous
        if packed and len(numbers) and _address(out) % self._alignment_bytes == 0:
            self.wait(Read(numbers, out.reshape(-1).view(np.uint8)))
        else:
            np.copyto(out, self.wait(self.plan(numbers)))
        return out

    def close(self) -> None:
        """Close the file; batches that are held stay valid. Idempotent."""
        self._file.close()
        with self._lock:
            arena, self._arena = self._arena, None
        if self._owns_arena and arena is not None:
            arena.close()

    def _get_arena(self) -> Arena:
        with self._lock:
            if self._arena is None:
                from forebay.memory import Arena

                limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // ARENA_SHARE
                self._arena = Arena(limit, name=f"records-{os.path.basename(self._path)}"[:100])
            return self._arena


def _open_blocks(opened: Opened, queue: Queue | None, direct: bool | None) -> tuple[BlockFile, int]:
    """The file for reading, and how its memory must be aligned: 1 where reads are buffered."""
    from forebay.blockio import BlockFile

    path, stride = opened.path, opened.layout.stride_bytes
    if direct is not False:
        try:
            file = BlockFile(path, direct=True, queue=queue)
        except (BrokenError, ConfigError, OSError):
            if direct:
                raise
        else:
            memory, offset = file.alignment
            if stride % offset == 0 and DATA_OFFSET % offset == 0:
                return _same(opened, file), max(memory, 2)
            file.close()
            if direct:
                raise ConfigError(
                    f"record file {path}: a stride of {stride} bytes is no multiple of {offset},"
                    " which O_DIRECT needs here; leave direct out, or pad the dtype"
                )
    return _same(opened, BlockFile(path, queue=queue)), 1


def _same(opened: Opened, file: BlockFile) -> BlockFile:
    """The file again, where it is the one that was opened before."""
    ours, theirs = os.fstat(opened.descriptor), os.fstat(file.fileno())
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        file.close()
        raise StaleError(f"record file {opened.path} was replaced while it was opened; try again")
    return file


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
