"""The connection of a client, made anew when it breaks."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from forebay._core import Connection, connect_unix
from forebay.errors import BrokenError, ClosedError, DeadlineError, Error
from forebay.executor.wire.frames import Answers, message
from forebay.executor.wire.peer import check_server
from forebay.rpc._internal import socket_path

__all__ = ["Links", "not_accepted", "ran_out"]

_logger = logging.getLogger(__name__)

PAUSE_S: Final = (0.01, 0.02, 0.05, 0.1, 0.25)
"""Before each attempt to reach a server that is gone; the last one repeats. A server that starts
again is there within a second, and is noticed a tenth of that later."""
TIMER_S: Final = 0.002
"""How much too early the timer of an event loop may come: uvloop rounds to milliseconds."""


def ran_out(error: Error, until: float | None) -> bool:
    """Whether a call that failed had no time left, also where an attempt to reconnect used it."""
    if isinstance(error, DeadlineError):
        return True
    return until is not None and time.monotonic() + TIMER_S >= until


def not_accepted(name: str, timeout: float | None) -> DeadlineError:
    """What a caller gets whose time for an acceptance ran out."""
    return DeadlineError(
        f"the server has not said within {timeout:g} s whether it has accepted request {name!r};"
        " wait again",
        timeout=timeout,
    )


class Links:
    """One connection at a time to the server of an application.

    Threads: any. The lock is held while a connection is opened, so that one thread opens it.
    """

    def __init__(
        self,
        url: str | None,
        app: str | None,
        *,
        start: bool,
        timeout: float,
        on_start: Callable[[str], None] | None,
    ) -> None:
        self.timeout = timeout
        self.where = url or app or "the server"
        self.current: Answers | None = None
        self._url = url
        self._app = app
        self._start = start
        self._on_start = on_start or _logger.info
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def get(self, application: str | None = None, until: float | None = None) -> Answers:
        """The connection, opened where there is none.

        Args:
            application: whose server it is, where nothing else says that.
            until: as of `again`.

        Raises:
            BrokenError: no server runs, and none may be started. ConfigError: nothing says which
            one, or it is another user's. DeadlineError: it does not start in time. ClosedError.
        """
        end = self.end(until)
        with self._alone(end):
            if self.current is None:
                if self._url is None and self._app is None and application is not None:
                    self._app = application
                self.current = self._open(end)
            return self.current

    def again(self, broken: Answers, until: float | None = None) -> Answers:
        """Another connection than the one that broke, as soon as a server is there.

        Args:
            broken: what the caller used; where another thread has replaced it, that is returned.
            until: on the monotonic clock; it goes on for `timeout` at most in any case.

        Raises:
            BrokenError: no server came back in time. ClosedError.
        """
        end = self.end(until)
        with self._alone(end):
            if self.current is not broken and self.current is not None:
                return self.current
            # Not closed: other threads have yet to learn from it what became of their calls. Its
            # socket goes with the last of them.
            self.current = None
            pauses = iter(PAUSE_S)
            while True:
                try:
                    self.current = self._open(end)
                except BrokenError as error:
                    left = end - time.monotonic()
                    if error.delivered != "no" or left <= 0:
                        raise
                    self._closing.wait(min(left, next(pauses, PAUSE_S[-1])))
                else:
                    return self.current

    def end(self, until: float | None) -> float:
        """When an attempt that begins now is given up, on the monotonic clock."""
        end = time.monotonic() + self.timeout
        return end if until is None else min(end, until)

    def gone(self) -> BrokenError:
        """For a caller whose time ended while another call tried to connect."""
        return BrokenError(
            f"{self.where} is gone, and another call still tries to reach it; try again",
            delivered="no",
        )

    @property
    def is_named(self) -> bool:
        """Whether it is known which server is meant."""
        return self._url is not None or self._app is not None or self.current is not None

    def tell_taken(self, id_: str) -> None:
        """Let the server remove the file of a result that was read; an untold one keeps it."""
        channel = self.current
        if channel is not None:
            with contextlib.suppress(Error):
                channel.tell(message("taken", (id_,)))

    @property
    def closed(self) -> bool:
        """Whether the client was left."""
        return self._closing.is_set()

    def close(self) -> None:
        """Close the connection; calls in flight end with ClosedError. Idempotent."""
        self._closing.set()
        with self._lock:
            channel, self.current = self.current, None
        if channel is not None:
            channel.close()

    @contextlib.contextmanager
    def _alone(self, end: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=max(0.0, end - time.monotonic())):
            raise self.gone()
        try:
            yield
        finally:
            self._lock.release()

    def _open(self, end: float) -> Answers:
        timeout = max(0.1, end - time.monotonic())  # the last attempt is one too
        if self._closing.is_set():
            raise ClosedError(
                f"the client of {self.where} is closed; make another one, and find your requests"
                " by client.get(id)"
            )
        path = self._path(timeout)
        self.where = f"unix://{path}"
        descriptor = connect_unix(path, timeout)
        with socket.socket(fileno=descriptor) as connected:
            check_server(connected, self.where)
            connected.detach()
        connection = Connection(descriptor, peer=self.where, trusted=True, by_reference=False)
        answers = Answers(connection, self.where)
        answers.greet()
        return answers

    def _path(self, timeout: float) -> str:
        """Where a server listens; one is started where that is allowed."""
        if self._url is not None:
            return socket_path(self._url)
        from forebay.executor.client.local import reach

        return reach(None, self._app, start=self._start, timeout=timeout, on_start=self._on_start)
