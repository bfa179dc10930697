"""Undoing what a request changed in its process, before the next one runs.

Everything is compared, and only what differs is restored: a request that changed nothing costs
two system calls (the working directory and the file mode mask) and some comparisons.
State that a request leaves in modules of the application is not restored.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from fcntl import ioctl
from termios import FIONREAD
from typing import Any

from forebay._working_directory import path_to_tell_apart

getsignal: Any = sys.modules["_signal"].getsignal
"""`signal.getsignal` without its conversion to an enumeration: a tenth of the time."""

_SIGNALS = tuple(
    int(number)
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGALRM,
        signal.SIGCHLD,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGPIPE,
        signal.SIGPROF,
        signal.SIGVTALRM,
        signal.SIGRTMIN + 7,
    )
)
_TIMERS = {
    int(signal.SIGALRM): signal.ITIMER_REAL,
    int(signal.SIGVTALRM): signal.ITIMER_VIRTUAL,
    int(signal.SIGPROF): signal.ITIMER_PROF,
}


READER_PAUSES_S = (0.00005,) * 20 + (0.001,) * 999
"""Pauses between two checks whether the server has read a pipe."""


class Isolation:
    """The state of this process at the time when this object was made; for its main thread.

    Environment, working directory, umask, standard streams, signal handlers, and what the
    application has set up of `logging`.
    """

    __slots__ = (
        "_cwd",
        "_environ",
        "_handlers",
        "_logging",
        "_outputs",
        "_stderr",
        "_stdin",
        "_stdout",
        "_umask",
        "_variables",
    )

    def __init__(self) -> None:
        self._environ: Any = os.environ
        self._variables: dict[bytes, bytes] = dict(_data(self._environ))
        self._cwd = path_to_tell_apart()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._stdin, self._stdout, self._stderr = sys.stdin, sys.stdout, sys.stderr
        self._outputs = [(descriptor, *_duplicate(descriptor)) for descriptor in (1, 2)]
        self._handlers = tuple(map(getsignal, _SIGNALS))
        self._logging = LoggingState()

    def restore(self) -> None:
        """Restore what differs, and write buffered output to the descriptors."""
        if sys.stdout is not self._stdout or sys.stderr is not self._stderr:
            self._restore_streams()
        elif sys.stdin is not self._stdin:
            sys.stdin = self._stdin
        self.flush()
        if os.environ is not self._environ or _data(self._environ) != self._variables:
            self._restore_environment()
        try:
            moved = os.getcwd() != self._cwd
        except OSError:  # it was removed
            moved = True
        if moved:
            with contextlib.suppress(OSError):
                os.chdir(self._cwd)
        os.umask(self._umask)
        if tuple(map(getsignal, _SIGNALS)) != self._handlers:
            self._restore_signals()
        self._logging.restore()

    def flush(self) -> None:
        """Write buffered output to the descriptors."""
        try:
            self._stdout.flush()
            self._stderr.flush()
        except ValueError:
            self._reopen()
        except OSError:
            pass  # nobody reads it any more

    def wait_for_reader(self) -> None:
        """Wait until the server has read what was printed, for a second at most.

        If the next request began at once, the server could not know whose output it reads. Nothing
        notifies a writer that a pipe is empty, so this checks again after a pause.
        Cost: one system call if nothing was printed.
        """
        wait_until_read(self._outputs[0][1])

    def restore_output(self) -> None:
        """Restore descriptors 1 and 2 if a request has replaced them.

        For a request that failed or was interrupted: one that redirects them restores them itself,
        unless it is interrupted. Cost: two system calls.
        """
        for descriptor, copy, identity in self._outputs:
            if _identity(descriptor) != identity:
                os.dup2(copy, descriptor)

    def close(self) -> None:
        """Close its descriptors; for a process that goes on without it."""
        for _, copy, _ in self._outputs:
            os.close(copy)
        self._outputs.clear()

    def _restore_streams(self) -> None:
        """Flush the streams that replaced ours, then restore ours."""
        for stream in (sys.stdout, sys.stderr):
            # They belong to the request: an error of theirs is no error of the worker.
            with contextlib.suppress(Exception):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = self._stdin, self._stdout, self._stderr

    def _reopen(self) -> None:
        """Replace streams that a request has closed; their descriptors are still open."""
        if self._stdout.closed:
            sys.stdout = self._stdout = _stream(1, "strict")
        if self._stderr.closed:
            sys.stderr = self._stderr = _stream(2, "backslashreplace")

    def _restore_environment(self) -> None:
        os.environ = self._environ  # noqa: B003 - the mapping itself was replaced
        now, before = _data(self._environ), self._variables
        for name in [name for name in now if name not in before]:
            del os.environb[name]
        for name, value in before.items():
            if now.get(name) != value:
                os.environb[name] = value

    def _restore_signals(self) -> None:
        for number, before in zip(_SIGNALS, self._handlers, strict=True):
            if getsignal(number) is before or before is None:
                continue
            if number in _TIMERS:
                signal.setitimer(_TIMERS[number], 0)
            signal.signal(number, before)


def wait_until_read(descriptor: int) -> None:
    """Wait until everything in this pipe was read, for a second at most."""
    unread = bytearray(4)
    for pause_s in READER_PAUSES_S:
        try:
            ioctl(descriptor, FIONREAD, unread)
        except OSError:
            return
        if not any(unread):
            return
        time.sleep(pause_s)


def _duplicate(descriptor: int) -> tuple[int, tuple[int, int] | None]:
    """A duplicate of the descriptor, and the identity of its file."""
    return os.dup(descriptor), _identity(descriptor)


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        file = os.fstat(descriptor)
    except OSError:
        return None  # it was closed
    return file.st_dev, file.st_ino


def _data(environ: Any) -> dict[bytes, bytes]:
    """The bytes in `os.environ`: comparing them takes a microsecond, comparing its items ten."""
    below: dict[bytes, bytes] = environ._data
    return below


def _stream(descriptor: int, errors: str) -> io.TextIOWrapper:
    binary = open(descriptor, "wb", closefd=False)  # noqa: SIM115 - lives as long as the process
    return io.TextIOWrapper(binary, encoding="utf-8", errors=errors, line_buffering=True)


class LoggingState:
    """Level and handlers of each logger; nothing if `logging` is not imported."""

    __slots__ = ("_count", "_disable", "_known", "_root")

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, list[Any]]] = {}
        self._root: tuple[int, list[Any]] = (30, [])
        self._count, self._disable = 0, 0
        logging: Any = sys.modules.get("logging")
        if logging is None:
            return
        self._root = (logging.root.level, list(logging.root.handlers))
        self._count = len(logging._handlerList)
        self._disable = logging.root.manager.disable
        self._known = {
            name: (logger.level, list(logger.handlers)) for name, logger in _loggers(logging)
        }

    def restore(self) -> None:
        """Restore levels and handlers if the root or the number of handlers has changed."""
        logging: Any = sys.modules.get("logging")
        if logging is None:
            return
        root = logging.root
        level, handlers = self._root
        if root.level != level or root.handlers != handlers:
            root.setLevel(level)
            root.handlers[:] = handlers
        if root.manager.disable != self._disable:
            logging.disable(self._disable)
        if len(logging._handlerList) == self._count:
            return
        for name, logger in _loggers(logging):
            level, handlers = self._known.get(name, (0, []))
            if logger.level != level:
                logger.setLevel(level)
            if logger.handlers != handlers:
                # A library's NullHandler keeps its warnings quiet; it holds nothing.
                quiet = [one for one in logger.handlers if type(one) is logging.NullHandler]
                logger.handlers[:] = [*handlers, *(one for one in quiet if one not in handlers)]
        self._count = len(logging._handlerList)


def _loggers(logging: Any) -> list[tuple[str, Any]]:
    """Loggers by name, without those of the worker itself."""
    known = list(logging.root.manager.loggerDict.items())
    return [
        (name, logger)
        for name, logger in known
        if isinstance(logger, logging.Logger) and name.partition(".")[0] != "forebay"
    ]
