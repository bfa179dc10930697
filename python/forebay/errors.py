"""The whole exception tree, split by what the caller can do.

    Error
     +- ConfigError (ValueError)        wrong before anything happened
     |   +- OutOfRangeError (IndexError)    an index that is not there
     +- ClosedError                     you closed it
     +- BusyError                       two tasks use one thing at once
     +- LimitError                      a named limit was reached: .limit .value
     +- DeadlineError (TimeoutError)    time ran out: .timeout
     +- StaleError                      the handle is from before a release or a free
     +- BrokenError                     the other side or the system failed: .delivered (no, maybe)
     |   +- DiedError (ConnectionError)     a process ended: .cause .exit_code .signal ...
     |   +- ProtocolError (ConnectionError) the peer broke the protocol: .peer .offset
     |   +- BlockError (OSError)            one block failed: .index .errno
     +- CancelledError                  the work was cancelled
     +- RemoteError                     the work itself raised: .traceback_text
     +- InternalError                   our fault; says how to tell us

Where a builtin fits it is inherited too, so that old `except` clauses keep working.
A message names the object, the value, the limit and the next step; the data is in attributes.
"""

from __future__ import annotations

import builtins
import functools
from typing import Any, Literal

__all__ = [
    "BlockError",
    "BrokenError",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "ConfigError",
    "DeadlineError",
    "DiedError",
    "Error",
    "InternalError",
    "LimitError",
    "OutOfRangeError",
    "ProtocolError",
    "RemoteError",
    "StaleError",
    "remote_error",
]

Delivered = Literal["no", "maybe"]


class Error(Exception):
    """Root of everything that Forebay raises on purpose."""


class ConfigError(Error, ValueError):
    """An argument or a setting is wrong; nothing has happened yet."""


class OutOfRangeError(ConfigError, IndexError):
    """A row or an index lies outside of what there is."""


class ClosedError(Error):
    """The object was closed by its owner."""


class BusyError(Error):
    """Two tasks or threads use one thing at once."""


class LimitError(Error):
    """A named limit was reached.

    Attributes:
        limit: the limit's value, in the unit that its name says.
        value: what was asked for, or what was counted.
    """

    def __init__(
        self, message: str, *, limit: int | float | None = None, value: int | float | None = None
    ):
        super().__init__(message)
        self.limit = limit
        self.value = value


class DeadlineError(Error, TimeoutError):
    """Time ran out.

    Attributes:
        timeout: the time that was allowed, in seconds.
    """

    def __init__(self, message: str, *, timeout: float | None = None):
        super().__init__(message)
        self.timeout = timeout


class StaleError(Error):
    """The handle is from before a release or a free; what it named may have another owner."""


class BrokenError(Error):
    """The other side or the system failed.

    Attributes:
        delivered: "no" when the work certainly did not start, else "maybe".
    """

    def __init__(self, message: str, *, delivered: Delivered = "maybe"):
        super().__init__(message)
        self.delivered: Delivered = delivered


class DiedError(BrokenError, ConnectionError):
    """A process ended while it was needed.

    Attributes:
        cause: one word for why: "exit", "signal", "killed" (by a policy of ours), "lost".
        pid: the process.
        exit_code: its exit code, or None.
        signal: the number of the signal that ended it, or None.
        peak_bytes: the most private memory seen, or None.
        limit_bytes: the memory limit in force, or None.
        stderr_tail: the last lines that it wrote to stdout and stderr.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: str = "lost",
        pid: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        peak_bytes: int | None = None,
        limit_bytes: int | None = None,
        stderr_tail: str = "",
        delivered: Delivered = "maybe",
    ):
        super().__init__(message, delivered=delivered)
        self.cause = cause
        self.pid = pid
        self.exit_code = exit_code
        self.signal = signal
        self.peak_bytes = peak_bytes
        self.limit_bytes = limit_bytes
        self.stderr_tail = stderr_tail


class ProtocolError(BrokenError, ConnectionError):
    """The peer broke the protocol; the connection is closed.

    Attributes:
        peer: who, as far as it is known.
        offset: byte offset in the received stream at which it was noticed.
    """

    def __init__(
        self,
        message: str,
        *,
        peer: str = "",
        offset: int | None = None,
        delivered: Delivered = "maybe",
    ):
        super().__init__(message, delivered=delivered)
        self.peer = peer
        self.offset = offset


class BlockError(BrokenError, OSError):
    """One block of a batch failed; the others are valid.

    Attributes:
        index: which operation of the batch.
        errno: why.
    """

    def __init__(self, message: str, *, index: int, errno: int):
        super().__init__(message, delivered="maybe")
        self.index = index
        self.errno = errno


class CancelledError(Error):
    """Somebody cancelled the work, and it has ended; nothing failed.

    It is no `asyncio.CancelledError`, which would end the task that waits for the work.
    """


class RemoteError(Error):
    """The work itself raised; the service is alive and the connection usable.

    The raised object is also an instance of the builtin exception that was raised there,
    so `except ValueError` catches a remote ValueError.

    Attributes:
        type_name: qualified name of the remote exception's type.
        traceback_text: the remote traceback as text; also attached as a note.
    """

    type_name: str = ""
    traceback_text: str = ""

    def __str__(self) -> str:
        # The builtin's own may read attributes that are not set here, as UnicodeDecodeError's.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class InternalError(Error):
    """A fault of Forebay itself; the message says how to report it."""


class _RemoteLimitError(RemoteError, LimitError):
    """A limit that the other side has reached; its text has the numbers."""

    limit: int | float | None = None
    value: int | float | None = None


_LIMIT = f"{LimitError.__module__}.{LimitError.__qualname__}"


@functools.cache
def _remote_class(builtin: str) -> type[RemoteError]:
    base = getattr(builtins, builtin, None)
    if not isinstance(base, type) or not issubclass(base, Exception) or base is Exception:
        return RemoteError
    # MemoryError must come first, because it has a `__new__` of its own.
    for bases in ((RemoteError, base), (base, RemoteError)):
        try:
            made = type(f"Remote{builtin}", bases, {"__module__": __name__})
            made.__new__(made, "")
        except TypeError:
            continue
        return made
    return RemoteError  # a builtin whose layout cannot be combined, or that needs arguments


def remote_error(builtin: str, type_name: str, message: str, traceback_text: str) -> RemoteError:
    """Rebuild an exception that was raised in another process.

    Args:
        builtin: name of the nearest builtin base class, for example "ValueError".
        type_name: qualified name of the exception's own type.
        message: its text.
        traceback_text: its traceback, formatted there.
    """
    cls: type[RemoteError] = _remote_class(builtin)
    text = message if type_name.rpartition(".")[2] == builtin else f"{type_name}: {message}"
    if type_name == _LIMIT:  # as where a result is above what a frame may hold
        cls, text = _RemoteLimitError, message
    error: Any = cls.__new__(cls, text)
    error.args = (text,)
    error.type_name = type_name
    error.traceback_text = traceback_text
    if traceback_text:
        error.add_note(f"remote traceback:\n{traceback_text.rstrip()}")
    return error  # type: ignore[no-any-return]
