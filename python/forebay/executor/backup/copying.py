"""Copying a state directory, whether a server has it or none runs.

What is promised, and how long the store is held: docs/concepts/executor/backup.md.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from forebay import _core
from forebay._runtime_directory import open_private
from forebay.errors import BrokenError, ConfigError, LimitError
from forebay.executor.backup import layout
from forebay.executor.backup.errors import (
    check_owner,
    does_not_fit,
    explained,
    explaining,
    free_bytes,
    is_full,
)
from forebay.executor.backup.folder import made
from forebay.executor.server.rows import rfc3339
from forebay.executor.wire.ids import number_of, text_of
from forebay.executor.wire.paths import TOKENS, main_of

__all__ = ["back_up"]

Told = Callable[[str, int, int], None]
"""Gets what is copied, and how much of how much: "database" in bytes, "results", "logs" and
"items" in files, of which the whole is not known: 0."""

ROWS_STEP: Final = 1000
"""Requests of one question about results."""

TOLD_EVERY: Final = 100
"""Files between two reports."""

_FICLONE: Final = 0x40049409
"""Of ioctl_ficlone(2), on all machines but Alpha, MIPS, PowerPC and SPARC, where it is refused."""
_CANNOT_CLONE: Final = (
    *(errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS),
    *(errno.EISDIR, errno.EPERM, errno.EBADF, errno.ETXTBSY),
)
_CANNOT_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


def back_up(
    state: Path,
    target: Path,
    *,
    with_key: bool = True,
    with_tokens: bool = False,
    told: Told,
    removed: Callable[[Path], object] = lambda _: None,
) -> dict[str, Any]:
    """Copy a state directory into a folder that a server can start from.

    Args:
        state: the directory.
        target: DIR, which does not exist or is empty.
        with_key: with what opens sealed arguments.
        with_tokens: with the tokens of the gateway.
        told: gets the progress; what it raises ends the copy.
        removed: gets each partial folder that a killed backup to DIR had left, once it is gone.

    Returns:
        What `backup.json` has.

    Raises:
        ConfigError: there is nothing to copy, or it is another user's, or DIR cannot be made there.
        LimitError: the disk is full; `value` bytes are needed, and `limit` are free.
        BrokenError: the store cannot be read, or the disk failed.
    """
    with explaining(state):
        _check(state)
        with made(target, state, removed) as partial:
            return _Copying(state, partial, target, told).run(
                with_key=with_key, with_tokens=with_tokens
            )


def _check(state: Path) -> None:
    """Make sure that there is a store of this user."""
    try:
        os.stat(state / layout.DATABASE)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            f"there is no store in {state}; name its application with --app, or a running server "
            "with --url"
        ) from None
    check_owner(state)


class _Copying:
    """One copy."""

    def __init__(self, state: Path, partial: Path, target: Path, told: Told) -> None:
        self._state = state
        self._partial = partial
        self._target = target
        self._told = told
        self._inside = partial / state.name
        self._copier = _ResultCopier()
        self._bytes = 0
        self._files = 0
        self._forgotten = 0
        self._missing: list[str] = []

    def run(self, *, with_key: bool, with_tokens: bool) -> dict[str, Any]:
        began_at, began = time.time_ns() // 1_000_000, time.monotonic()
        with self._room_for(self._state.name, 4096):
            for one in ("", layout.RESULTS, layout.LOGS, layout.ITEMS):
                (self._inside / one).mkdir(0o700)
        self._whole(layout.JOURNAL)  # before the database: what began is in one of both
        copy = self._database()
        files = self._partial / layout.FILES
        with self._room_for(layout.FILES, 4096), open(files, "w", opener=open_private) as listed:
            self._results(copy, listed)
            self._logs(copy, listed)
            self._items(copy, listed)
        for name in (layout.MANIFEST, *layout.AUDIT_LOGS):
            self._whole(name)
        has_key = with_key and self._whole(layout.KEY)
        has_tokens = with_tokens and self._whole(TOKENS)
        version, requests, unfinished, newest = copy.contents()
        told = {
            "name": self._state.name,
            **self._application(),
            "began_at": rfc3339(began_at),
            "took_s": round(time.monotonic() - began, 3),
            "version": version,
            "requests": requests,
            "unfinished": unfinished,
            "newest": None if newest is None else text_of(newest),
            "files": self._files,
            "bytes": self._bytes,
            "pruned": self._forgotten,
            "missing": self._missing,
            "key": has_key,
            "tokens": has_tokens,
        }
        with self._room_for(layout.ABOUT, 4096):
            layout.write_about(self._partial, told)
        return told

    def _database(self) -> _core.StoreBackup:
        target = self._inside / layout.DATABASE
        needed = _length(self._state / layout.DATABASE)
        if needed > free_bytes(self._partial):
            raise self._full(layout.DATABASE, needed)

        def step(done: int, whole: int) -> None:
            nonlocal needed
            needed = whole  # with what the log has
            self._told("database", done, whole)

        with self._room_for(layout.DATABASE, lambda: needed):
            copy = _core.StoreBackup.copy(os.fspath(self._state), os.fspath(target), step)
        self._bytes += needed
        return copy

    def _results(self, copy: _core.StoreBackup, listed: TextIO) -> None:
        """The files that the copy names; what retention removed meanwhile goes from it too."""
        store = _core.StoreReader(os.fspath(self._state))
        behind = 0
        while rows := copy.results(behind, ROWS_STEP):
            behind = rows[-1][0]
            gone = []
            for number, length in rows:
                name = f"{layout.RESULTS}/{text_of(number)}"
                with self._room_for(name, length):
                    found = self._copier.copy(self._state / name, self._inside / name)
                if found is None and store.get(number) is None:
                    gone.append(number)
                elif found is None:
                    self._missing.append(name)
                else:
                    self._count("results", listed, name, found)
            if gone:
                with self._room_for(layout.DATABASE, 1 << 20):
                    copy.forget(gone)
                self._forgotten += len(gone)

    def _logs(self, copy: _core.StoreBackup, listed: TextIO) -> None:
        """The logs of the requests that are in the copy; one that is gone was pruned."""
        for entry in os.scandir(self._state / layout.LOGS):
            stem, dot, kind = entry.name.partition(".")
            if (dot, kind) != (".", "log"):
                continue
            try:
                known = copy.has(number_of(stem))
            except ValueError:
                continue  # no file of ours
            if not known:
                continue
            name = f"{layout.LOGS}/{entry.name}"
            with self._room_for(name, functools.partial(_length, entry.path)):
                try:
                    found = _core.copy_log(entry.path, os.fspath(self._inside / name))
                except FileNotFoundError:
                    continue
            self._count("logs", listed, name, found)

    def _items(self, copy: _core.StoreBackup, listed: TextIO) -> None:
        """The items of the requests that are in the copy.

        The head of a file is read first, so that all that it counts is in the copy, whatever a run
        adds meanwhile.
        """
        with contextlib.suppress(FileNotFoundError):  # of a store that no server has had since
            entries = os.scandir(self._state / layout.ITEMS)
            for entry in entries:
                try:
                    known = copy.has(number_of(entry.name))
                except ValueError:
                    continue  # no file of ours, or one that a run begins
                name = f"{layout.ITEMS}/{entry.name}"
                if known and self._whole(name):
                    self._count("items", listed, name, _length(self._inside / name))

    def _count(self, what: str, listed: TextIO, name: str, length: int) -> None:
        listed.write(f"{length} {name}\n")
        self._bytes += length
        self._files += 1
        if self._files % TOLD_EVERY == 1:
            self._told(what, self._files, 0)

    def _whole(self, name: str) -> bool:
        """Copy a small file; False: there is none."""
        source, target = self._state / name, self._inside / name
        with self._room_for(name, lambda: _length(source)):
            try:
                return _read(source, target)
            except FileNotFoundError:
                return False

    def _application(self) -> dict[str, Any]:
        """Whose store it is; nothing where no application was ever loaded."""
        try:
            told = json.loads((self._inside / layout.MANIFEST).read_bytes())
            file = main_of(self._state.name, told["sources"])
            return {"app": told["app"], "file": file or told["target"]}
        except (OSError, ValueError, KeyError, TypeError):
            return {"app": None, "file": None}

    @contextlib.contextmanager
    def _room_for(self, name: str, needed: int | Callable[[], int]) -> Iterator[None]:
        """Say of a full disk which file did not fit.

        Raises:
            LimitError: it is full.
            ConfigError: this user may not read a file, or write one.
            BrokenError: a file cannot be read or written for another reason.
        """
        try:
            yield
        except (OSError, BrokenError) as error:
            before = _limit_before(error)
            if before is not None:
                raise before from None  # the list of files could not be closed either
            if is_full(error):
                raise self._full(name, needed if isinstance(needed, int) else needed()) from error
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, PermissionError):
                raise explained(cause, self._state) from error
            if isinstance(error, OSError):
                raise BrokenError(
                    f"{name} cannot be copied to {self._target}: {error}; look at both disks, then "
                    "begin again",
                    delivered="no",
                ) from error
            raise

    def _full(self, name: str, needed: int) -> LimitError:
        return does_not_fit(name, needed, self._target, free_bytes(self._partial))


class _ResultCopier:
    """Copies files that nobody writes to any more, in the cheapest way that their disks allow."""

    def __init__(self) -> None:
        self._ways = [_clone, _link, _read]

    def copy(self, source: Path, target: Path) -> int | None:
        """Copy one; its length. None: there is none, or what is there is no result."""
        try:
            found = source.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        while True:
            try:
                if self._ways[0](source, target):
                    return target.stat().st_size
            except FileNotFoundError:
                return None
            del self._ways[0]  # nor is it possible for the next one


def _clone(source: Path, target: Path) -> bool:
    """Share the blocks, where the file system copies what is written to; False: it does not."""
    with open(source, "rb") as read, open(target, "xb", opener=open_private) as written:
        try:
            fcntl.ioctl(written, _FICLONE, read.fileno())
            return True
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
    target.unlink()
    return False


def _link(source: Path, target: Path) -> bool:
    """Give the file a second name; False: that cannot be done between these folders."""
    try:
        os.link(source, target, follow_symlinks=False)
        return True
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
    return False


def _read(source: Path, target: Path) -> bool:
    with open(source, "rb") as read, open(target, "xb", opener=open_private) as written:
        shutil.copyfileobj(read, written, 1 << 20)
    return True


def _limit_before(error: BaseException) -> LimitError | None:
    """What was raised already when another error followed from the same full disk."""
    before = error.__context__
    while before is not None and not isinstance(before, LimitError):
        before = before.__context__
    return before


def _length(path: str | Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
