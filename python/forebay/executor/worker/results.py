"""Where a worker puts what a request returned: into its answer, or into a file of the store.

The worker itself writes a result above `max_result_bytes`, and its answer has only the length. The
server checks the file, renames it and commits, and copies nothing. If a worker dies before it has
answered, the server removes the file; if the server died too, the next server does.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from forebay._failures import megabytes
from forebay.errors import LimitError
from forebay.executor.wire.codec import encode
from forebay.executor.wire.parts import Encoder
from forebay.executor.worker import answers
from forebay.executor.worker.entry import Unkept

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.executor.worker.entry import Entry

__all__ = ["LargeResult", "Results"]

FILE_BYTES_MAX: Final = 1 << 30
"""A longer result fails its request: it could not be sent to a client on another machine."""

_DIRECTORY: Final = "results"
_UNFINISHED: Final = "new"
"""Both as in crates/executor/src/store."""

_FILE_MODE: Final = 0o600


class Results:
    """Makes the answers of one worker from results.

    Args:
        state: the server's state directory; None if it keeps nothing: all results are sent.
        bytes_max: longer results become files.

    Thread affinity: the worker's main thread.
    """

    __slots__ = ("_bytes_max", "_directory", "_parts")

    def __init__(self, state: str | None, bytes_max: int) -> None:
        self._directory = None if state is None else os.path.join(state, _DIRECTORY)
        self._bytes_max = bytes_max
        self._parts: Callable[[Any], list[Any]] = Encoder().encode

    def encode(self, entry: Entry, value: Any) -> answers.Answer | LargeResult:
        """The answer with a result, or a result that must be written to a file before the answer.

        Raises:
            Unfit: the result is no data.
        """
        if self._directory is None:
            return answers.result(entry.encode(value, encode))
        parts = entry.encode(value, self._parts)
        size = sum(len(part) for part in parts)
        if size > self._bytes_max:
            return LargeResult(entry.name, self._directory, parts, size)
        return answers.result(parts[0] if len(parts) == 1 else entry.encode(value, encode))


class LargeResult:
    """A result that becomes a file."""

    __slots__ = ("_directory", "_name", "_parts", "_size")

    def __init__(self, name: str, directory: str, parts: list[Any], size: int) -> None:
        self._name = name
        self._directory = directory
        self._parts = parts
        self._size = size

    def own(self) -> None:
        """Copy its arrays, because the application may still write to them."""
        self._parts = [bytes(part) for part in self._parts]

    def keep(self, id: str, attempt: int) -> answers.Answer:
        """Write it to the disk, as the result of this run; blocks until it is on disk.

        Raises:
            Unkept: it cannot be written; no part of it is left on the disk.
        """
        if self._size > FILE_BYTES_MAX:
            return answers.too_long(
                LimitError(f"{self._size} bytes; a file may have {FILE_BYTES_MAX}")
            )
        path = os.path.join(self._directory, f"{id}.{attempt}.{_UNFINISHED}")
        try:
            self._write(path)
        except OSError as error:
            raise Unkept(self._text(error)) from error
        return answers.in_file(self._size)

    def _write(self, path: str) -> None:
        descriptor = _open(path)
        try:
            os.fchmod(descriptor, _FILE_MODE)  # whatever the umask
            for part in self._parts:
                left = memoryview(part)
                while left:
                    left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(descriptor)

    def _text(self, error: OSError) -> str:
        """Why it could not be written: what, where, how much, and what to do."""
        where = self._directory
        with contextlib.suppress(OSError):
            there = os.statvfs(where)
            free = megabytes(there.f_bavail * there.f_frsize)
            of = megabytes(there.f_blocks * there.f_frsize)
            where += f" (on the file system {_mount_of(where)}, {free} free of {of})"
        return (
            f"request {self._name!r}: its result of {self._size} bytes cannot be kept in {where}:"
            f" {error.strerror or error}; free some of the disk, remove requests with forebay"
            " prune, or give the server a larger disk by FOREBAY_STATE_DIR"
        )


def _open(path: str) -> int:
    """A new file; what an earlier try of the same run left there is removed, not written to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        return os.open(path, flags, _FILE_MODE)
    os.unlink(path)
    return os.open(path, flags, _FILE_MODE)


def _mount_of(path: str) -> str:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
