"""Appending to a record file: data, sync, commit block, sync.

A caller queues its append and waits for its turn. The caller that has the turn commits what is
queued, its own append and those of the others, which find theirs done when their turn comes.

The order of locks is `_turn`, then `_lock`. The turn is held through the syncs, since that is what
gathers the next group; nothing but appends and `close` waits for it.
"""

from __future__ import annotations

import errno
import os
import threading
from asyncio import AbstractEventLoop
from typing import Final

from forebay._numpy import Array, np
from forebay.blockio.records.commit import (
    Commit,
    encode,
    offset_of,
    read_commit,
    shortage,
    write_all,
)
from forebay.blockio.records.group import Append, Group, Groups
from forebay.blockio.records.layout import CHECKSUM_BYTES, numbered_checksums
from forebay.blockio.records.lock import unlock
from forebay.blockio.records.open import Opened, cut
from forebay.errors import BlockError, BrokenError, ClosedError, Error

__all__ = ["Appender"]

STAGING_BYTES: Final = 4 << 20
"""Records are laid out in strides in memory of this size, and written from there."""


class Appender:
    """Appends to a file, for any number of threads and event loops.

    Args:
        opened: by `open_appending`; the descriptor is the appender's from now on.
        sync: whether an append waits for the disk.
    """

    def __init__(self, opened: Opened, *, sync: bool) -> None:
        self.commit = opened.commit
        self._opened = opened
        self._sync = sync
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._groups = Groups(opened.layout.max_group)
        self._refusal: Error | None = None
        self._staging: Array | None = None

    def append(self, rows: Array) -> int:
        """Append and wait until it is committed; the number of the first record.

        Args:
            rows: u1[n, record_bytes], one or more; not changed until this returns.

        Raises:
            BlockError: it was not written, or is not known to be.
            ClosedError, BrokenError: the file takes no appends any more.
        """
        append = Append(rows)
        self.enter(append)
        try:
            with self._turn:
                while not append.ended:
                    self._commit_next()
        except BaseException:
            self.withdraw(append)
            raise
        return append.outcome()

    def enter(self, append: Append) -> None:
        """Queue an append; the caller that has the turn commits it.

        Raises:
            ClosedError, BrokenError: the file takes no appends any more.
        """
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            self._groups.add(append)

    def withdraw(self, append: Append) -> bool:
        """Take an append back; False where it is being written, or was."""
        with self._lock:
            return self._groups.withdraw(append)

    def drain(self) -> None:
        """Commit everything that is queued; in a thread where no signal handler runs."""
        try:
            with self._turn:
                while self._groups:
                    self._commit_next()
        except BaseException as error:
            # The waiting appends are the only ones that can get this error.
            with self._lock:
                failed = self._groups.fail(dict.fromkeys(self._groups.everything(), error))
            _notify(failed)
            raise

    def close(self) -> None:
        """Let the commit that runs end, fail what is queued, unlock the file. Idempotent."""
        path = self._opened.path
        closed = ClosedError(f"record file {path} is closed; open it again to append")
        with self._turn:
            with self._lock:
                was_closed = isinstance(self._refusal, ClosedError)
                self._refusal = closed
                failed = self._groups.fail(dict.fromkeys(self._groups.everything(), closed))
            self._staging = None
            if not was_closed:
                unlock(self._opened.file)
                self._opened.file.close()
        _notify(failed)

    def _commit_next(self) -> None:
        """Commit the next group; the caller has the turn."""
        with self._lock:
            group = self._groups.begin()
        if group is None:
            return
        try:
            ended = self._commit(group)
        except BaseException:  # a signal handler raised: nothing of the group is committed
            with self._lock:
                self._groups.abort()
            raise
        _notify(ended)

    def _commit(self, group: Group) -> list[Append]:
        """Data, sync, commit block, sync; which appends are over."""
        opened = self._opened
        short = shortage(opened.descriptor, opened.path, opened.layout, self.commit)
        if short is not None:  # behind its end there would be a hole, which reads as zeros
            return self._stop(short, {})
        commit = Commit(self.commit.sequence + 1, self.commit.appended + group.n)
        try:
            self._write(group)
        except OSError as error:
            cut(opened, self.commit)
            return self._fail(group, error)
        descriptor = opened.descriptor
        try:
            if self._sync:
                os.fdatasync(descriptor)
            write_all(descriptor, memoryview(encode(commit)), offset_of(commit.sequence))
            return self._finish(group, commit)
        except OSError as error:
            return self._refuse(group, error)
        except BaseException:
            # A signal handler raised. Where the commit block is there, so are its records.
            if self.commit != commit and self._reaches_the_file(commit):
                self._finish(group, commit)
            _notify([part.append for part in group.parts if part.append.ended])
            raise

    def _reaches_the_file(self, commit: Commit) -> bool:
        opened = self._opened
        return read_commit(opened.descriptor, opened.path, opened.layout) == commit

    def _finish(self, group: Group, commit: Commit) -> list[Append]:
        """Sync the commit block; from then on its records are there."""
        try:
            if self._sync:
                os.fdatasync(self._opened.descriptor)
        except OSError as error:
            return self._refuse(group, error)
        with self._lock:
            first, self.commit = self.commit.appended, commit
            return self._groups.settle(first)

    def _write(self, group: Group) -> None:
        """Write the records of a group to their slots, in as few writes as they allow."""
        layout, number = self._opened.layout, self.commit.appended
        if self._staging is None:
            rows = max(1, STAGING_BYTES // layout.stride_bytes)
            self._staging = np.zeros((rows, layout.stride_bytes), np.uint8)
        staging, staged, room = self._staging, 0, self._room(number)
        for append, start, stop in group.parts:
            while start < stop:
                n = min(stop - start, room - staged)
                staging[staged : staged + n, : layout.record_bytes] = append.rows[start : start + n]
                staged, start = staged + n, start + n
                if staged == room:
                    self._flush(number, staged)
                    number, staged = number + staged, 0
                    room = self._room(number)
        if staged:
            self._flush(number, staged)

    def _room(self, number: int) -> int:
        """Records that can be written in one piece from this one on."""
        assert self._staging is not None, "made before the first write"
        slots = self._opened.layout.slots
        rows = len(self._staging)
        return min(rows, slots - number % slots) if slots else rows

    def _flush(self, number: int, n: int) -> None:
        assert self._staging is not None, "made before the first write"
        layout, records = self._opened.layout, self._staging[:n]
        if layout.checksums:
            at = layout.record_bytes
            sums = numbered_checksums(records, layout, np.arange(number, number + n))
            column = sums.view(np.uint8).reshape(n, CHECKSUM_BYTES)
            records[:, at : at + CHECKSUM_BYTES] = column
        data = records.reshape(-1).data
        write_all(self._opened.descriptor, data, layout.offset(number))

    def _fail(self, group: Group, error: OSError) -> list[Append]:
        errors = self._errors(group, error, "make room, and append it again")
        with self._lock:
            return self._groups.fail(errors)

    def _refuse(self, group: Group, error: OSError) -> list[Append]:
        """A failed sync leaves the disk unknown: the kernel has dropped the pages."""
        advice = "check the disk, then open the file again"
        errors = self._errors(group, error, f"whether it is on the disk is unknown: {advice}")
        refusal = BrokenError(
            f"record file {self._opened.path} takes no more appends since a sync failed"
            f" ({error.strerror}); {advice}",
            delivered="no",
        )
        return self._stop(refusal, errors)

    def _stop(self, refusal: Error, errors: dict[Append, BaseException]) -> list[Append]:
        """Take no more appends; fail what waits, those of `errors` with their own."""
        with self._lock:
            self._refusal = refusal
            waiting: dict[Append, BaseException] = dict.fromkeys(self._groups.everything(), refusal)
            return self._groups.fail(waiting | errors)

    def _errors(self, group: Group, error: OSError, advice: str) -> dict[Append, BaseException]:
        return {part.append: self._error(part.append, error, advice) for part in group.parts}

    def _error(self, append: Append, error: OSError, advice: str) -> BlockError:
        n, done = len(append.rows), append.committed
        kept = f", of which the first {done} are committed," if done else ""
        return BlockError(
            f"record file {self._opened.path}: appending {n} records{kept}"
            f" ({n * self._opened.layout.stride_bytes} bytes) failed: {error.strerror}; {advice}",
            index=done,
            errno=error.errno or errno.EIO,
        )


def _notify(ended: list[Append]) -> None:
    """Wake the loops whose appends ended, each once."""
    loops: dict[AbstractEventLoop, list[Append]] = {}
    for append in ended:
        if append.loop is not None:
            loops.setdefault(append.loop, []).append(append)
    for loop, appends in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, appends)


def _resolve(appends: list[Append]) -> None:
    for append in appends:
        future = append.future
        if future is None or future.done():
            continue
        if append.error is not None:
            future.set_exception(append.error)
        else:
            future.set_result(append.first)
