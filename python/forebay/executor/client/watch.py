"""Waiting for a request while its output and its progress are shown.

Two threads read the log and the events over a connection of their own, and put what they read into
a queue. The caller's thread alone shows it: so an interrupt ends the waiting at once, and in a
notebook everything appears in the cell that waits. Closing that connection ends the threads.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from forebay.errors import Error
from forebay.executor.client.display import LAST_WORDS_S, UPDATE_S, display_of

if TYPE_CHECKING:
    from forebay.executor.client.client import Client
    from forebay.executor.client.request import Request

__all__ = ["watch"]

QUEUED_MAX: Final = 1024
"""Pieces of a log and events that wait to be shown; the threads that read them wait then."""

_LOG, _EVENT, _OVER = "log", "event", "over"


def watch(request: Request, timeout: float | None) -> None:
    """Show a request's output and progress until it has ended, or `timeout` seconds are over."""
    id_ = request.accepted(timeout)
    until = None if timeout is None else time.monotonic() + timeout
    display = display_of(f"{request.name} {id_}".strip())
    with _Reader(request._client, id_) as reader:
        try:
            for told in reader.items(until):
                if told is None:
                    display.refresh()
                else:
                    display.show(told)
        except BaseException:
            display.close("goes on")
            raise
        display.close()


class _Reader:
    """The log and the events of a request, in the order in which they come."""

    def __init__(self, client: Client, id_: str) -> None:
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(QUEUED_MAX)
        self._left = threading.Event()
        self._viewer = client._another()
        viewed = self._viewer.get(id_)
        streams: list[tuple[str, Callable[[], Iterator[Any]]]] = [
            (_LOG, viewed.logs),
            (_EVENT, viewed.events),
        ]
        self._threads = [
            threading.Thread(target=self._read, args=stream, name="forebay-watch", daemon=True)
            for stream in streams
        ]

    def __enter__(self) -> _Reader:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._viewer.close()
        for thread in self._threads:
            thread.join()

    def items(self, until: float | None) -> Iterator[Any]:
        """Text and events, until both streams are over, or the time is.

        None where there was neither for `UPDATE_S`.
        """
        reading = len(self._threads)
        while reading:
            left = UPDATE_S if until is None else until - time.monotonic()
            if left <= 0:
                return
            try:
                what, told = self._queue.get(timeout=min(left, UPDATE_S))
            except queue.Empty:
                yield None
                continue
            if what != _OVER:
                yield told
                continue
            reading -= 1
            last = time.monotonic() + LAST_WORDS_S
            if told == _EVENT:  # the request has ended, and its log is about to
                until = last if until is None else min(until, last)

    def _read(self, what: str, stream: Callable[[], Iterator[Any]]) -> None:
        """Of a thread: put what a stream gives into the queue, until it ends or is left."""
        try:
            # The result says what went wrong; the others: the connection was closed meanwhile.
            with contextlib.suppress(Error, OSError, ValueError):
                for told in stream():
                    self._put(what, told)
        finally:
            self._put(_OVER, what)

    def _put(self, what: str, told: Any) -> None:
        while not self._left.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put((what, told), timeout=UPDATE_S)
                return
