"""Running generators: what they yield is kept in a file of the store, and told to the server.

A run makes a file with the next epoch, and renames it onto that of the run before. An item is
written first and counted in the file's head after that, so a worker that dies in between leaves no
half of one that counts. Then a record on the side socket tells the server to look. Nothing is ever
taken back: what a reader may have seen stays.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final, Self

from forebay._failures import megabytes
from forebay.errors import ConfigError, LimitError
from forebay.executor.wire.items import (
    COUNTS,
    COUNTS_AT,
    DIRECTORY,
    HEAD_BYTES,
    LENGTH,
)
from forebay.executor.wire.parts import Encoder
from forebay.executor.worker.entry import Unkept
from forebay.executor.worker.forks import is_forked
from forebay.executor.worker.item_file import OPEN_MAX, ItemFile
from forebay.executor.worker.kept import not_kept

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator, Mapping

    from forebay.executor.app.context import Context
    from forebay.executor.worker.entry import Call, Entry
    from forebay.executor.worker.side import Side

__all__ = ["Items", "ItemsFile"]

Run = tuple[str, int]
"""Id and attempt."""

AGAIN_S: Final = 0.01
"""A record that the server has no room for is sent again after so long, on an event loop."""

PARTS_MAX: Final = 64
"""Buffers of one item that are written at once; of more, each by itself."""


class Items:
    """Runs the generators of one worker.

    Args:
        state: the server's state directory; None if it keeps nothing: no generator can run.
        limits: `max_items`, `max_item_bytes` and `max_stream_bytes`, of one request; "synced":
            whether items are on the disk before the end of their run is told.
        side: where it is told that there are more.

    Thread affinity: the worker's main thread.
    """

    __slots__ = ("_directory", "encode", "files_open", "limits", "side")

    def __init__(self, state: str | None, limits: Mapping[str, int], side: Side) -> None:
        self._directory = None if state is None else os.path.join(state, DIRECTORY)
        self.encode: Callable[[Any], list[Any]] = Encoder().encode
        self.limits = limits
        self.side = side
        self.files_open = 0

    def call_of(self, entry: Entry, id: str, attempt: int) -> Call:
        """What runs a generator to its end, keeps its items and returns what it returns."""

        def call(blob: Any, context: Context | None) -> Any:
            with self.open(entry, (id, attempt)) as kept:
                try:
                    result = _run(entry.call(blob, context), kept)
                except Exception:
                    with contextlib.suppress(Unkept):
                        kept.sync()
                    raise
                kept.sync()
                return result

        return call

    def open(
        self, entry: Entry, run: Run, loop: asyncio.AbstractEventLoop | None = None
    ) -> ItemsFile:
        """The file of a run; on a loop it never waits for the server.

        Raises:
            ConfigError: the server keeps nothing. Unkept: it cannot be made.
        """
        if self._directory is None:
            raise ConfigError(
                f"{entry.definition.what} is a generator, and this server keeps nothing; run it"
                " in a server with a state directory"
            )
        return ItemsFile(self, entry, self._directory, run, loop)


class ItemsFile:
    """The items of one run, in a file of its own. A context manager, which closes the file.

    Raises:
        Unkept: it cannot be made.
    """

    __slots__ = (
        "_count",
        "_directory",
        "_end",
        "_file",
        "_is_late",
        "_items",
        "_loop",
        "_run",
        "_what",
        "entry",
    )

    def __init__(
        self,
        items: Items,
        entry: Entry,
        directory: str,
        run: Run,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.entry = entry
        self._items = items
        self._directory = directory
        self._run = run
        self._loop = loop
        self._is_late = False
        self._what = entry.definition.what
        self._count, self._end = 0, HEAD_BYTES
        has_room = items.files_open < OPEN_MAX
        try:
            self._file = ItemFile(directory, *run, stays_open=has_room)
        except OSError as error:
            raise self._unkept("its items", error) from error
        items.files_open += has_room
        self._tell()

    def add(self, value: Any) -> None:
        """Write an item and have it counted.

        Raises:
            Unfit: it is no data. LimitError: it is one too many, or too long. Unkept: it cannot be
            written; none of it counts.

        Cost: three system calls, and a fourth to tell the server.
        """
        if is_forked():
            os._exit(0)  # a child that the generator forked: its parent goes on
        parts = self.entry.encode(value, self._items.encode, verb="yielded")
        size = sum(map(len, parts))
        self._check(size)
        parts.insert(0, LENGTH.pack(size))
        end = self._end + LENGTH.size + size
        descriptor = self._file.descriptor
        try:
            if descriptor is not None:
                self._append(descriptor, parts, end)
            else:
                with self._file.opened() as opened:
                    self._append(opened, parts, end)
        except OSError as error:
            part = f"item {self._count + 1} of {megabytes(size)}"
            raise self._unkept(part, error) from error
        self._count, self._end = self._count + 1, end
        self._tell()

    def sync(self) -> None:
        """Have the items on the disk, with the name of their file. Any thread.

        Raises:
            Unkept: that failed.
        """
        if not self._items.limits["synced"]:
            return
        try:
            self._file.sync()
        except OSError as error:
            raise self._unkept(f"its {self._count} items", error) from error

    def close(self) -> None:
        """Close the file, which stays. Idempotent."""
        self._items.files_open -= self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def _append(self, descriptor: int, parts: list[Any], end: int) -> None:
        """Write an item, and then that it counts."""
        _write(descriptor, parts, self._end)
        os.pwrite(descriptor, COUNTS.pack(self._count + 1, end), COUNTS_AT)

    def _check(self, size: int) -> None:
        limits, number = self._items.limits, self._count + 1
        if size > (most := limits["max_item_bytes"]):
            raise LimitError(
                f"{self._what}: item {number} has {size} bytes, and max_item_bytes is {most}; yield"
                " the path of a file or smaller parts, or raise it:"
                f" FOREBAY_EXECUTOR_MAX_ITEM_BYTES={size}"
            )
        if number > (most := limits["max_items"]):
            raise LimitError(
                f"{self._what}: it has yielded {self._count} items, and max_items is {most}; yield"
                " fewer and larger ones, or raise it:"
                f" FOREBAY_EXECUTOR_MAX_ITEMS={2 * most}"
            )
        whole = self._end - HEAD_BYTES + LENGTH.size + size
        if whole > (most := limits["max_stream_bytes"]):
            raise LimitError(
                f"{self._what}: with item {number} its items have {whole} bytes, and"
                f" max_stream_bytes is {most}; yield less, or raise it:"
                f" FOREBAY_EXECUTOR_MAX_STREAM_BYTES={2 * most}"
            )

    def _tell(self) -> None:
        """Have the server look. If it is slow, a thread waits, and a loop tells it later."""
        if self._is_late:
            return
        told = self._items.side.tell_items(*self._run, wait=self._loop is None)
        if not told and self._loop is not None:
            self._is_late = True
            self._loop.call_later(AGAIN_S, self._tell_late)

    def _tell_late(self) -> None:
        self._is_late = False
        self._tell()

    def _unkept(self, part: str, error: OSError) -> Unkept:
        return Unkept(not_kept(self._what, part, self._directory, error))


def _write(descriptor: int, parts: list[Any], at: int) -> None:
    """Write buffers there, over what a failure may have left."""
    if len(parts) <= PARTS_MAX and os.pwritev(descriptor, parts, at) == sum(map(len, parts)):
        return
    for part in parts:
        left = memoryview(part)
        while left:
            written = os.pwrite(descriptor, left, at)
            left, at = left[written:], at + written


def _run(generator: Generator[Any, None, Any], kept: ItemsFile) -> Any:
    """Keep what a generator yields; what it returns. Whatever happens, it has ended after that."""
    try:
        while True:
            try:
                value = next(generator)
            except StopIteration as end:
                return end.value
            kept.add(value)
    except BaseException as error:
        try:
            generator.close()
        except Exception as other:
            error.add_note(f"and the generator raised {other!r} when it was closed")
        raise
