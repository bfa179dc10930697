"""The process's reader thread: it completes the futures of submitted calls.

One daemon thread with one epoll serves all channels. A channel is in the epoll only while it
has submitted calls, so that a blocking call afterwards reads for itself again.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay._core import Connection
from forebay.errors import Error
from forebay.rpc._unanswered import no_reply

if TYPE_CHECKING:
    from forebay.rpc._channel import Channel

__all__ = ["Submitted"]


class Submitted:
    """The submitted calls of one channel."""

    def __init__(self, channel: Channel, connection: Connection, pidfd: int):
        self._channel = channel
        self._connection = connection
        self._pidfd = pidfd
        self._futures: dict[int, Future[Any]] = {}
        # Order: this lock before the reader's; neither is held while a future is completed.
        self._lock = threading.Lock()
        self._watched: list[int] = []

    def submit(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: float | None,
        generation: int | None,
    ) -> Future[Any]:
        """Start a call; the reader thread completes its future."""
        channel, connection = self._channel, self._connection
        head, segments = channel._encode_call(method, args, kwargs)
        future: Future[Any] = Future()
        with self._lock:
            if generation is None:
                generation = channel.generation
            call = connection.start(channel._number, head, segments, timeout, generation)
            self._futures[call] = future
            if not self._watched:
                self._watch()
        future.add_done_callback(partial(self._on_done, call))
        if timeout is not None:
            reader().add_timer(timeout, self, call)
        if connection.outbox_bytes:
            connection.drain(timeout)
        return future

    def step(self, descriptor: int) -> None:
        """Read what is there and complete its futures. Called by the reader thread."""
        with self._lock:
            if descriptor not in self._watched:
                return
            if descriptor == self._pidfd:
                self._connection.peer_died()
            finished = self._take()
            while self._connection.holds_received:
                finished += self._take()
            if not self._futures or self._connection.over:
                self._unwatch()
        self._complete(finished)

    def expire(self, call: int, timeout: float) -> None:
        """End a call whose time ran out."""
        with self._lock:
            future = self._futures.pop(call, None)
            if future is None:
                return
            if not self._connection.closed:
                self._connection.cancel(call)
            if not self._futures:
                self._unwatch()
        name = self._channel.name
        error = no_reply(name, timeout)
        self._complete([(future, error)])

    def forget(self) -> None:
        """Take the channel's descriptors out of the reader, before they are closed."""
        with self._lock:
            self._unwatch()

    def finish_all(self) -> None:
        """Complete what the closed connection ended."""
        with self._lock:
            finished = self._take()
        self._complete(finished)

    def _take(self) -> list[tuple[Future[Any], Any]]:
        received = self._connection.receive(self._channel._number)
        return [(self._futures.pop(call), got) for call, got in received if call in self._futures]

    def _complete(self, finished: list[tuple[Future[Any], Any]]) -> None:
        for future, outcome in finished:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._channel._finish(outcome)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _on_done(self, call: int, future: Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            if self._futures.pop(call, None) is None:
                return
            if not self._connection.closed:
                self._connection.cancel(call)
            if not self._futures:
                self._unwatch()

    def _watch(self) -> None:
        self._connection.attach()
        self._watched = [self._connection.fileno()]
        if self._pidfd >= 0:
            self._watched.append(self._pidfd)
        for descriptor in self._watched:
            reader().add(descriptor, self)

    def _unwatch(self) -> None:
        for descriptor in self._watched:
            reader().remove(descriptor)
        if self._watched and not self._connection.closed:
            self._connection.detach()
        self._watched = []


class _Reader:
    """The thread, its epoll and its timers."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._lock = threading.Lock()
        self._targets: dict[int, Submitted] = {}
        self._timers: list[tuple[float, int, Submitted, int, float]] = []
        threading.Thread(target=self._run, name="forebay-rpc-reader", daemon=True).start()

    def add(self, descriptor: int, target: Submitted) -> None:
        with self._lock:
            self._targets[descriptor] = target
            self._epoll.register(descriptor, select.EPOLLIN)

    def remove(self, descriptor: int) -> None:
        with self._lock:
            if self._targets.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)

    def add_timer(self, timeout: float, target: Submitted, call: int) -> None:
        at = time.monotonic() + timeout
        with self._lock:
            earliest = not self._timers or at < self._timers[0][0]
            heapq.heappush(self._timers, (at, id(target), target, call, timeout))
        if earliest:
            os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while True:
            self._turn()  # apart, so that no local of it keeps a channel alive while it waits

    def _turn(self) -> None:
        for descriptor, _ in self._epoll.poll(self._until_timer()):
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
                continue
            with self._lock:
                target = self._targets.get(descriptor)
            if target is not None:
                self._step(target, descriptor)
        for expired, call, timeout in self._due():
            expired.expire(call, timeout)

    @staticmethod
    def _step(target: Submitted, descriptor: int) -> None:
        try:
            target.step(descriptor)
        except Error:
            target.finish_all()  # closed between the poll and the step

    def _until_timer(self) -> float | None:
        with self._lock:
            return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _due(self) -> list[tuple[Submitted, int, float]]:
        due = []
        now = time.monotonic()
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                _, _, target, call, timeout = heapq.heappop(self._timers)
                due.append((target, call, timeout))
        return due


_instance: _Reader | None = None
_instance_lock = threading.Lock()


def reader() -> _Reader:
    """The reader of this process; a forked child makes its own."""
    global _instance
    known = _instance
    if known is not None and known.owner == os.getpid():
        return known
    with _instance_lock:
        if _instance is None or _instance.owner != os.getpid():
            _instance = _Reader()
        return _instance
