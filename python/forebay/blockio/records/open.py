"""Opening a record file."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import FileIO
from typing import Any

from forebay.blockio.records.commit import (
    Commit,
    encode,
    mend,
    read_commit,
    shortage,
    write_all,
)
from forebay.blockio.records.layout import (
    BLOCK_BYTES,
    CAPACITY_MAX,
    Layout,
    describe,
    record_dtype,
)
from forebay.blockio.records.lock import lock
from forebay.errors import ConfigError

__all__ = ["Opened", "Wanted", "cut", "open_appending", "open_reading"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller says that a file is, or has it made as; None or False: whatever it is.

    Attributes:
        dtype: of a record.
        capacity: of the window, in records.
        checksums: whether records must carry checksums.
    """

    dtype: Any
    capacity: int | None
    checksums: bool

    def layout(self, path: str) -> Layout:
        """Of a new file."""
        if self.dtype is None:
            raise ConfigError(f"record file {path} does not exist yet; give the dtype of a record")
        return Layout.new(
            record_dtype(self.dtype), self.capacity or 0, checksums=bool(self.checksums)
        )

    def check(self) -> None:
        """Refuse what no file can be."""
        capacity = self.capacity
        if capacity is not None and not 1 <= capacity <= CAPACITY_MAX:
            raise ConfigError(
                f"a capacity of {capacity} records; give 1 to capacity_max ({CAPACITY_MAX}), or"
                " None for a file that grows"
            )

    def compare(self, layout: Layout, path: str) -> None:
        """Refuse a file that is something else, naming both."""
        if self.dtype is not None:
            wanted = record_dtype(self.dtype)
            if describe(wanted) != describe(layout.dtype):
                raise ConfigError(
                    f"record file {path} holds records of dtype {layout.dtype},"
                    f" not {wanted}; open it with its own dtype, or give another path"
                )
        if self.capacity is not None and self.capacity != layout.capacity:
            has = f"a capacity of {layout.capacity}" if layout.capacity else "no capacity"
            raise ConfigError(
                f"record file {path} has {has}, not {self.capacity};"
                " leave capacity out, or give another path"
            )
        if self.checksums and not layout.checksums:
            raise ConfigError(
                f"record file {path} was made without checksums, which stays so;"
                " leave checksums out, or give another path"
            )


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file.

    Attributes:
        path: as it was given.
        file: the owner's to close; never O_DIRECT.
        layout: what its header says.
        commit: the newest one.
    """

    path: str
    file: FileIO
    layout: Layout
    commit: Commit

    @property
    def descriptor(self) -> int:
        """Of the file."""
        return self.file.fileno()


def open_reading(path: str, wanted: Wanted) -> Opened:
    """Open a file that exists; another process may append to it meanwhile.

    Raises:
        ConfigError: it is something else than is wanted.
        BrokenError: it is damaged.
        OSError: it cannot be opened.
    """
    wanted.check()
    file = FileIO(path)
    with _closed_on_error(file):
        return _read(path, file, wanted)


def open_appending(path: str, wanted: Wanted) -> Opened:
    """Open a file for appending, which one caller at a time may, and make it if it is missing.

    Raises:
        BusyError: another process or object appends to it.
        ConfigError, BrokenError, OSError: as `open_reading`.
    """
    wanted.check()
    try:
        file = FileIO(path, "r+")
    except FileNotFoundError:
        _make(path, wanted)
        file = FileIO(path, "r+")
    with _closed_on_error(file):
        lock(file, path)
        opened = _read(path, file, wanted)
        cut(opened, opened.commit)
        return replace(opened, commit=mend(file.fileno(), opened.commit))


def _read(path: str, file: FileIO, wanted: Wanted) -> Opened:
    descriptor = file.fileno()
    layout = Layout.decode(os.pread(descriptor, BLOCK_BYTES, 0), path)
    wanted.compare(layout, path)
    commit = read_commit(descriptor, path, layout)
    short = shortage(descriptor, path, layout, commit)
    if short is not None:
        raise short
    return Opened(path, file, layout, commit)


def cut(opened: Opened, commit: Commit) -> None:
    """Take away what lies behind a commit of a file that grows: a crash or a full disk left it."""
    least = opened.layout.data_bytes(commit.appended)
    if not opened.layout.capacity and os.fstat(opened.descriptor).st_size > least:
        os.ftruncate(opened.descriptor, least)


def _make(path: str, wanted: Wanted) -> None:
    """Make a file that appears whole or not at all; one that another process made meanwhile stays.

    A crash at the wrong moment leaves a file of 12 KiB under another name.

    Raises:
        OSError: it cannot be made, for want of room too.
    """
    head = wanted.layout(path).encode() + encode(Commit(0, 0)) + encode(Commit(1, 0))
    unborn = f"{path}.{secrets.token_hex(4)}.new"
    descriptor = os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, memoryview(head), 0)
        os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(unborn, path)
    finally:
        os.close(descriptor)
        os.unlink(unborn)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextlib.contextmanager
def _closed_on_error(file: FileIO) -> Iterator[None]:
    try:
        yield
    except BaseException:
        file.close()
        raise
