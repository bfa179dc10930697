"""Finding the server that is meant, and starting one in the background where none runs.

A server that is started here outlives whoever started it: it has a session of its own, writes to
`server.log` in its state directory, and ends by itself when it is idle for long.
Of two programs that start one at the same time, one succeeds, by the lock of the state directory;
the other one waits for it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from forebay._package import PATH_ENTRY
from forebay._runtime_directory import make_private
from forebay.configuration import Configuration, find_configuration
from forebay.errors import BrokenError, ConfigError, DeadlineError, Error
from forebay.executor.app.target import Target, parse_target
from forebay.executor.wire.paths import (
    ServerPaths,
    StateLock,
    newest,
    paths_of,
    running_at,
)
from forebay.executor.wire.peer import check_server

PROGRAM = "forebay.executor.server.background"
"""What a server in the background runs."""

LOG_LINES = 20
"""Of the log of a server that did not start, in the message."""

LOG_BYTES_MAX = 10_000_000
"""Above it the log of earlier servers is put aside, once, by the next start."""

LOOK_S = 0.02
"""Between two looks for a server that somebody else starts: nothing tells when it is ready."""

CONNECT_S = 5.0
"""Longest time for a Unix socket to take a connection; it takes microseconds."""

READY, BUSY, FAILED, UNFIT = b"ready", b"busy", b"failed", b"unfit"
"""What a server in the background says of its start, once, to the pipe that it was given."""

_started: list[int] = []
"""Servers that this process started: they are its children, and reaped when another is."""

OnStart = Callable[[str], None]


class Home(NamedTuple):
    """An application, and where its server is."""

    target: Target
    paths: ServerPaths


def home_of(app: str, configuration: Configuration | None = None) -> Home:
    """Where the server of an application is, given its TARGET.

    Raises:
        ConfigError: there is no such application.
    """
    configuration = configuration or find_configuration()
    target = parse_target(app)
    return Home(target, paths_of(target, state_dir=configuration.value("state_dir")))


def reach(
    url: str | None, app: str | None, *, start: bool, timeout: float, on_start: OnStart
) -> str:
    """Find a server that answers; start one where none does.

    Args:
        url: `unix:///path/of.sock`, which is not started.
        app: TARGET of the application. Without both: `FOREBAY_URL` or `url`, then `FOREBAY_APP` or
            `app` of `forebay.toml`, then the server that was started last.
        start: whether one may be started.
        timeout: seconds until it is ready, the import of the application included.
        on_start: gets a line where one was started.

    Returns:
        The path of its socket.

    Raises:
        ConfigError: nothing names an application, or there is none of that name; or the server
            belongs to another user.
        BrokenError: none runs, and none may be started; or it could not be started.
        DeadlineError: it was not ready in time; it goes on to start.
    """
    configuration = find_configuration({"url": url, "app": app})
    named = configuration.settings["app"]
    if url is None and (app is None or named.value is None):
        url = configuration.value("url")
    if url is not None:
        return _answering(url)
    if named.value is None:
        return _newest()
    home = home_of(named.value, configuration)
    return _ready(
        home, start=start, deadline=time.monotonic() + timeout, timeout=timeout, on_start=on_start
    )


def _answering(url: str) -> str:
    scheme, colon, path = url.partition("://")
    if scheme != "unix" or not colon or not path.startswith("/"):
        raise ConfigError(f"url {url!r}: write the socket of a server, as in unix:///path/of.sock")
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CONNECT_S)
            probe.connect(path)
            check_server(probe, url)
    except OSError as error:
        raise BrokenError(
            f"no server answers at {url}: {error.strerror or error}; start one with: forebay serve",
            delivered="no",
        ) from None
    return path


def _newest() -> str:
    found = newest()
    if found is None:
        raise ConfigError(
            "no server runs and nothing names an application; give --app FILE.py, set FOREBAY_APP, "
            'or write app = "FILE.py" into forebay.toml'
        )
    return found.socket


def _ready(home: Home, *, start: bool, deadline: float, timeout: float, on_start: OnStart) -> str:
    """The socket of the application's server, once there is one."""
    begun: _Start | None = None
    try:
        while True:
            found = running_at(home.paths)
            if found is not None:
                if begun is not None and begun.pid == found.pid:
                    on_start(begun.text())
                return found.socket
            if time.monotonic() >= deadline:
                raise _late(home, timeout)
            if begun is not None:
                begun.wait(deadline)
            elif StateLock.is_held(home.paths.state):
                time.sleep(LOOK_S)  # another one starts it, or the last one is ending
            elif start:
                begun = _Start(home)
            else:
                raise BrokenError(
                    f"no server of {home.target.text} runs; start one with: "
                    f"forebay serve {home.target.text}",
                    delivered="no",
                )
    finally:
        if begun is not None:
            begun.close()


class _Start:
    """A server that was started in the background, until it says what came of it.

    Attributes:
        pid: its process; another one may have been quicker.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        make_private(home.paths.state)
        _put_aside(home.paths.log)
        self._log_from = home.paths.log.stat().st_size if home.paths.log.exists() else 0
        self._said = b""
        read, write = map(_above_streams, os.pipe2(os.O_CLOEXEC))
        try:
            self.pid = _spawn(home, write)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._pipe = read
        _reap()
        _started.append(self.pid)

    def wait(self, deadline: float) -> None:
        """Until it says something, or another server is waited for in its place.

        Raises:
            BrokenError: it has failed. ConfigError: the application cannot be imported.
        """
        if self._pipe < 0:
            time.sleep(LOOK_S)  # another one was quicker: that one is waited for
            return
        left = max(0.0, deadline - time.monotonic())
        if not select.select([self._pipe], [], [], left)[0]:
            return
        data = os.read(self._pipe, 4096)
        self._said += data
        if not data:
            self.close()
            if not self._said.startswith((READY, BUSY)):
                raise self._failed()

    def text(self) -> str:
        """The line for the user."""
        idle = find_configuration().executor.idle_timeout
        after = f"{idle / 60:g} idle minutes" if idle >= 60 else f"{idle:g} idle seconds"
        return (
            f"started a local server for {self._home.target.text} (process {self.pid}); "
            f"it ends after {after}"
        )

    def _failed(self) -> Error:
        text = self._said.partition(b" ")[2].decode(errors="replace").strip()
        if self._said.startswith(UNFIT):
            return ConfigError(f"the application cannot be used: {text}")
        tail = _tail(self._home.paths.log, self._log_from)
        return BrokenError(
            f"the local server of {self._home.target.text} did not start"
            + (f": {text}" if text else f"; the last of {self._home.paths.log}:\n{tail}"),
            delivered="no",
        )

    def close(self) -> None:
        """Listen no more. Idempotent."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def _above_streams(descriptor: int) -> int:
    """The descriptor, moved where it took the place of a stream that this process has closed."""
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _spawn(home: Home, write: int) -> int:
    """Start the process: a session of its own, so that no Ctrl-C of ours ends it."""
    code = f"import sys; sys.path.insert(0, {PATH_ENTRY!r}); from {PROGRAM} import main; main()"
    log = os.fspath(home.paths.log)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    if write != 3:
        actions.append((os.POSIX_SPAWN_DUP2, write, 3))
    else:
        os.set_inheritable(write, True)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", code, home.target.text],
        os.environ,
        file_actions=actions,
        setsigmask=[],
        setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE],
        setsid=True,
    )


def _reap() -> None:
    """Servers that this process started and that have ended."""
    for pid in list(_started):
        try:
            ended = os.waitpid(pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            ended = True
        if ended:
            _started.remove(pid)


def _late(home: Home, timeout: float) -> DeadlineError:
    return DeadlineError(
        f"the server of {home.target.text} was not ready within {timeout:.3g} s and goes on to"
        f" start; the last of {home.paths.log}:\n{_tail(home.paths.log, 0)}\nraise the timeout,"
        " or see what its import does",
        timeout=timeout,
    )


def _put_aside(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))


def _tail(log: Path, start: int) -> str:
    """The last lines of a log, of what was written from `start` on."""
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 64 * 1024))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-LOG_LINES:])
