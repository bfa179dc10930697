"""Files of a worker that lies on another machine: sent as they grow, written as here.

Items of generators and large results are files of the server's state directory, which a worker
writes itself. On a node it writes them into a directory of its own; `FileSender` reads them there,
and `FileWriter` writes them where they belong, before the record or the reply that names them.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from typing import TYPE_CHECKING, Final

from forebay._failures import megabytes
from forebay.executor.engine.link import ITEMS, RESULT
from forebay.executor.wire.ids import text_of
from forebay.executor.wire.items import (
    COUNTS,
    COUNTS_AT,
    DIRECTORY,
    HEAD_BYTES,
    LENGTH,
    head_of,
)
from forebay.executor.worker.item_file import OPEN_MAX, ItemFile
from forebay.executor.worker.kept import not_kept, open_new
from forebay.executor.worker.results import DIRECTORY as RESULTS
from forebay.executor.worker.results import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forebay.executor.engine.link import Link

__all__ = ["FileSender", "FileWriter", "Run"]

Run = tuple[int, int]
"""Number of the request, and attempt."""

PIECE_BYTES: Final = 1 << 20

FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Of a result's file: a request may have put a link or a pipe in its place."""

_ITEMS: Final = struct.Struct("<IQQQ")
"""Attempt, offset, how many items there are, where the last ends: 0 in all pieces but the last."""

_RESULT: Final = struct.Struct("<IQB")
"""Attempt, offset, whether it is the last piece."""


class FileSender:
    """Sends the files of one worker.

    Args:
        state: the directory that the worker takes for the server's; made here.
        link: to the stand-in.
    """

    def __init__(self, state: str, link: Link) -> None:
        self._items = os.path.join(state, DIRECTORY)
        self._results = os.path.join(state, RESULTS)
        for directory in (self._items, self._results):
            os.makedirs(directory, 0o700)
        self._link = link
        self._sent: dict[Run, int] = {}
        """Where the items end that were sent."""

    def send_items(self, run: Run) -> None:
        """Send the items of a run that are new."""
        path = os.path.join(self._items, text_of(run[0]))
        head = head_of(path)
        if head is None:
            return
        at = self._sent.get(run, HEAD_BYTES)
        with open(path, "rb") as file:
            for offset, data, is_last in _pieces(file.fileno(), at, head.end):
                counted = (head.number, head.end) if is_last else (0, 0)
                self._link.put(ITEMS, run[0], _ITEMS.pack(run[1], offset, *counted), data)
                self._link.make_room()
        self._sent[run] = head.end

    def before_reply(self, run: Run, *, has_result: bool) -> None:
        """Send what a run has written and nobody was told of, and remove its files.

        Args:
            run: it has ended.
            has_result: whether its result is in a file.
        """
        items = os.path.join(self._items, text_of(run[0]))
        if run in self._sent or os.path.lexists(items):
            self.send_items(run)
            self._sent.pop(run, None)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(items)
        if not has_result:
            return
        path = os.path.join(self._results, name_of(text_of(run[0]), run[1]))
        try:
            descriptor = os.open(path, FLAGS)
        except OSError:  # there is none, or what the request has put there is no file
            return
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.close(descriptor)
            return
        try:
            for offset, data, is_last in _pieces(descriptor, 0, found.st_size):
                self._link.put(RESULT, run[0], _RESULT.pack(run[1], offset, is_last), data)
                self._link.make_room()
        finally:
            os.close(descriptor)
        os.unlink(path)


def _pieces(descriptor: int, at: int, end: int) -> Iterator[tuple[int, bytes, bool]]:
    """Offset, bytes, and whether they are the last; one piece at least."""
    while True:
        data = os.pread(descriptor, min(PIECE_BYTES, end - at), at)
        is_last = at + len(data) >= end or not data
        yield at, data, is_last
        if is_last:
            return
        at += len(data)


class FileWriter:
    """Writes the files of a worker that is elsewhere into the state directory.

    Args:
        state: the server's state directory; None: it keeps nothing.
        synced: whether items are on the disk before the reply of their run.
    """

    def __init__(self, state: str | None, *, synced: bool) -> None:
        self._state = state
        self._synced = synced
        self._items: dict[Run, _ItemsFile] = {}
        self._results: dict[Run, int] = {}
        self._failures: dict[Run, str] = {}
        """Why something of a run could not be kept."""
        self._open = 0
        """Files of items that stay open."""

    def add_items(self, number: int, body: bytes) -> bool:
        """Write a piece of items; the first one of a run begins its file.

        Returns:
            Whether they are kept; if not, neither is what comes behind them.
        """
        attempt, offset, count, end = _ITEMS.unpack_from(body)
        run, data = (number, attempt), memoryview(body)[_ITEMS.size :]
        if run in self._failures:
            return False
        directory, file = self._directory(DIRECTORY), self._items.get(run)
        part = "its items" if file is None else file.next_item(offset, data)
        with self._noting(run, directory, part):
            if file is None:
                has_room = self._open < OPEN_MAX
                file = self._items[run] = _ItemsFile(directory, run, stays_open=has_room)
                self._open += has_room
            file.add(data, offset, count, end)
        return run not in self._failures

    def add_result(self, number: int, body: bytes) -> None:
        """Write a piece of a large result; after the last one it is on the disk."""
        attempt, offset, is_last = _RESULT.unpack_from(body)
        run, data = (number, attempt), memoryview(body)[_RESULT.size :]
        directory = self._directory(RESULTS)
        with self._noting(run, directory, f"its result at {offset}"):
            descriptor = self._results.get(run)
            if descriptor is None:
                path = os.path.join(directory, name_of(text_of(number), attempt))
                descriptor = self._results[run] = open_new(path)
            _write(descriptor, data, offset)
            if is_last:
                os.fsync(descriptor)

    def end(self, run: Run) -> str | None:
        """Close the files of a run that has ended; why they could not be kept, if so."""
        items, result = self._items.pop(run, None), self._results.pop(run, None)
        if items is not None and self._synced:
            directory = self._directory(DIRECTORY)
            with self._noting(run, directory, "its items"):
                items.file.sync()
        if items is not None:
            self._open -= items.file.close()
        if result is not None:
            os.close(result)
        failure = self._failures.pop(run, None)
        if failure is not None and result is not None:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._directory(RESULTS), name_of(text_of(run[0]), run[1])))
        return failure

    def _directory(self, name: str) -> str:
        assert self._state is not None, "a worker of such a server writes no files"
        return os.path.join(self._state, name)

    @contextlib.contextmanager
    def _noting(self, run: Run, directory: str, part: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"request {text_of(run[0])}"
            self._failures.setdefault(run, not_kept(what, part, directory, error))


class _ItemsFile:
    """The file of the items of one run, and what of it counts.

    Args:
        directory: of such files.
        run: what it is of.
        stays_open: otherwise it is opened for each piece.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, directory: str, run: Run, *, stays_open: bool) -> None:
        self._count, self._end = 0, HEAD_BYTES
        self._next_bytes = 0
        self.file = ItemFile(directory, text_of(run[0]), run[1], stays_open=stays_open)

    def next_item(self, offset: int, data: memoryview) -> str:
        """The first item that does not count yet, for messages; a piece of it or behind it."""
        if offset == self._end and len(data) >= LENGTH.size:
            (self._next_bytes,) = LENGTH.unpack_from(data)
        return f"item {self._count + 1} of {megabytes(self._next_bytes)}"

    def add(self, data: memoryview, offset: int, count: int, end: int) -> None:
        """Write a piece, and that it counts, if it is the last one of some items."""
        with self.file.opened() as descriptor:
            _write(descriptor, data, offset)
            if end:
                os.pwrite(descriptor, COUNTS.pack(count, end), COUNTS_AT)
                self._count, self._end = count, end


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
