"""Where a worker puts what a request returned: into its answer, or into a file of the store.

The worker itself writes a result above `max_result_bytes`, and its answer has only the length. The
server checks the file, renames it and commits, and copies nothing. If a worker dies before it has
answered, the server removes the file; if the server died too, the next server does.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import LimitError
from forebay.executor.wire.codec import encode
from forebay.executor.wire.parts import Encoder
from forebay.executor.worker import answers
from forebay.executor.worker.entry import Unkept
from forebay.executor.worker.kept import not_kept, open_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.executor.worker.entry import Entry

__all__ = ["DIRECTORY", "LargeResult", "Results", "name_of"]

FILE_BYTES_MAX: Final = 1 << 30
"""A longer result fails its request: it could not be sent to a client on another machine."""

DIRECTORY: Final = "results"
_UNFINISHED: Final = "new"
"""Both as in crates/executor/src/store."""


def name_of(id: str, attempt: int) -> str:
    """The file of a run's result, until the server has seen its answer."""
    return f"{id}.{attempt}.{_UNFINISHED}"


class Results:
    """Makes the answers of one worker from results.

    Args:
        state: the server's state directory; None if it keeps nothing: all results are sent.
        bytes_max: longer results become files.

    Thread affinity: the worker's main thread.
    """

    __slots__ = ("_bytes_max", "_directory", "_parts")

    def __init__(self, state: str | None, bytes_max: int) -> None:
        self._directory = None if state is None else os.path.join(state, DIRECTORY)
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
        path = os.path.join(self._directory, name_of(id, attempt))
        try:
            self._write(path)
        except OSError as error:
            part = f"its result of {self._size} bytes"
            what = f"request {self._name!r}"
            raise Unkept(not_kept(what, part, self._directory, error)) from error
        return answers.in_file(self._size)

    def _write(self, path: str) -> None:
        descriptor = open_new(path)
        try:
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
