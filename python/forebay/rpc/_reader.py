"""The process's reader thread: it completes the futures of submitted calls.

One daemon thread with one epoll serves all channels. A channel is in the epoll only while it
has submitted calls, so that a blocking call afterwards reads for itself again.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import select
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from forebay import _forks
from forebay._core import Connection
from forebay._report import RETRY_S, report
from forebay.errors import BrokenError, Error
from forebay.rpc._unanswered import no_reply

if TYPE_CHECKING:
    from forebay.rpc._channel import Channel

__all__ = ["Submitted", "reader"]

_log = logging.getLogger(__name__)


class Submitted:
    """The submitted calls of one channel."""

    def __init__(self, channel: Channel, connection: Connection, pidfd: int):
        self._channel = channel
        self._connection = connection
        self._pidfd = pidfd
        self._futures: dict[int, Future[Any]] = {}
        self._ending: deque[tuple[Future[Any], Any]] = deque()
        """Futures of ended calls, with their outcomes, until they are completed."""
        # Order: this lock before the reader's; neither is held while a future is completed.
        self._lock = threading.Lock()
        self._watched: list[int] = []
        _forks.watch(self)

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
        watching = reader()  # before anything is sent, as it may not start
        with self._lock:
            if generation is None:
                generation = channel.generation
            call = connection.start(channel._number, head, segments, timeout, generation)
            try:
                self._futures[call] = future
                if not self._watched:
                    self._watch(watching)
                timer = None if timeout is None else watching.add_timer(timeout, self, call)
            except BaseException:
                self._take_back(call)
                raise
        future.add_done_callback(partial(self._on_done, call, timer))
        if connection.outbox_bytes:
            connection.drain(timeout)
        return future

    def step(self, descriptor: int) -> None:
        """Read what is there and complete its futures. Called by the reader thread."""
        try:
            with self._lock:
                if descriptor not in self._watched:
                    return
                if descriptor == self._pidfd:
                    self._connection.peer_died()
                self._take()
                while self._connection.holds_received:
                    self._take()
                if not self._futures or self._connection.over:
                    self._unwatch()
        finally:
            self._complete()

    def expire(self, call: int, timeout: float) -> None:
        """End a call whose time ran out."""
        late = no_reply(self._channel.name, timeout)
        try:
            with self._lock:
                if not self._end(call, late):
                    return
                if not self._connection.closed:
                    self._connection.cancel(call)
                if not self._futures:
                    self._unwatch()
        finally:
            self._complete()

    def forget(self) -> None:
        """Take the channel's descriptors out of the reader, before they are closed."""
        with self._lock:
            self._unwatch()

    def finish_all(self) -> None:
        """Complete what the closed connection ended."""
        try:
            with self._lock:
                if self._futures:  # a forked child has none
                    self._take()
        finally:
            self._complete()

    def give_up(self, error: BaseException) -> None:
        """End every call: the reader thread cannot read for them."""
        name = self._channel.name
        report(_log, error, "%s: the calls that were submitted end", name)
        lost = BrokenError(f"{name}: reading the answers raised {type(error).__name__}: {error}")
        try:
            with self._lock:
                for call in tuple(self._futures):
                    self._end(call, lost)
                    with contextlib.suppress(BaseException):  # the others end all the same
                        self._connection.cancel(call)
                self._unwatch()
        finally:
            self._complete()

    def _forget(self) -> object:
        """In a forked child: the calls are the parent's, and the lock may be held."""
        parents = self._lock, self._futures, self._ending
        self._lock, self._futures, self._watched = threading.Lock(), {}, []
        self._ending = deque()
        return parents

    def _take(self) -> None:
        for call, outcome in self._connection.receive(self._channel._number):
            self._end(call, outcome)

    def _end(self, call: int, outcome: Any) -> bool:
        """Have `_complete` end a call; False if it is over. At no time it is in no table."""
        future = self._futures.get(call)
        if future is None:
            return False
        self._ending.append((future, outcome))
        del self._futures[call]
        return True

    def _complete(self) -> None:
        while self._ending:
            try:
                future, outcome = self._ending.popleft()
            except IndexError:  # another thread completes them too
                return
            try:
                self._settle(future, outcome)
            except BaseException as error:
                # A callback's: `Future` passes it on unless it is an Exception. It must not end
                # the thread, or other futures.
                message = "%s: a callback of a submitted call raised %s, which ends no other thread"
                report(_log, error, message, self._channel.name, type(error).__name__)

    def _settle(self, future: Future[Any], outcome: Any) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = self._channel._finish(outcome)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _on_done(self, call: int, timer: _Timer | None, future: Future[Any]) -> None:
        if timer is not None:
            timer.cancel()
        if not future.cancelled():
            return
        with self._lock:
            if self._futures.pop(call, None) is None:
                return
            if not self._connection.closed:
                self._connection.cancel(call)
            if not self._futures:
                self._unwatch()

    def _take_back(self, call: int) -> None:
        """Cancel a call that was sent and has no future: `submit` raises instead."""
        self._futures.pop(call, None)
        if not self._futures:
            self._unwatch()
        with contextlib.suppress(Error):  # it is closed or broken
            self._connection.cancel(call)

    def _watch(self, watching: _Reader) -> None:
        watched = [self._connection.fileno()]
        if self._pidfd >= 0:
            watched.append(self._pidfd)
        self._connection.attach()
        self._watched = watched  # so that `_unwatch` undoes what is done of it
        for descriptor in watched:
            watching.add(descriptor, self)

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, []
        try:
            for descriptor in watched:
                reader().remove(descriptor)
        finally:
            if watched and not self._connection.closed:
                self._connection.detach()


class _Timer:
    """The end of one call's time. Once it is cancelled it holds nothing of the call."""

    __slots__ = ("_reader", "at", "call", "target", "timeout")

    def __init__(self, reader: _Reader, at: float, target: Submitted, call: int, timeout: float):
        self._reader = reader
        self.at = at
        self.target: Submitted | None = target
        self.call = call
        self.timeout = timeout

    def cancel(self) -> None:
        """The call has ended."""
        self._reader.drop_timer(self)


class _Reader:
    """The thread, its epoll and its timers."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._targets: dict[int, Submitted] = {}
        self._timers: list[tuple[float, int, _Timer]] = []
        """A heap, in which those that were cancelled stay until they are half of it."""
        self._cancelled = 0
        self._numbers = itertools.count()
        with contextlib.ExitStack() as made:
            self._epoll = made.enter_context(select.epoll())
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            made.callback(os.close, self._wake)
            self._epoll.register(self._wake, select.EPOLLIN)
            threading.Thread(target=self._run, name="forebay-rpc-reader", daemon=True).start()
            made.pop_all()  # they are the thread's

    @property
    def timers(self) -> int:
        """How many it keeps, cancelled ones included."""
        return len(self._timers)

    def add(self, descriptor: int, target: Submitted) -> None:
        with self._lock:
            self._targets[descriptor] = target
            try:
                self._epoll.register(descriptor, select.EPOLLIN)
            except BaseException:
                del self._targets[descriptor]  # it is not ours to unregister
                raise

    def remove(self, descriptor: int) -> None:
        with self._lock:
            if self._targets.pop(descriptor, None) is not None:
                self._epoll.unregister(descriptor)

    def add_timer(self, timeout: float, target: Submitted, call: int) -> _Timer:
        timer = _Timer(self, time.monotonic() + timeout, target, call, timeout)
        with self._lock:
            earliest = not self._timers or timer.at < self._timers[0][0]
            heapq.heappush(self._timers, (timer.at, next(self._numbers), timer))
        if earliest:
            os.eventfd_write(self._wake, 1)
        return timer

    def drop_timer(self, timer: _Timer) -> None:
        with self._lock:
            if timer.target is None:
                return
            timer.target = None
            self._cancelled += 1
            if self._cancelled * 2 > len(self._timers):
                self._timers = [entry for entry in self._timers if entry[2].target is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    def _run(self) -> None:
        while True:
            try:
                self._turn()  # apart, so that no local of it keeps a channel while it waits
            except BaseException as error:  # all channels share the thread, and none restarts it
                report(_log, error, "the reader of submitted calls goes on after")
                time.sleep(RETRY_S)

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
            try:
                expired.expire(call, timeout)
            except BaseException as error:
                self._give_up(expired, error)

    def _step(self, target: Submitted, descriptor: int) -> None:
        try:
            try:
                target.step(descriptor)
            except Error:
                target.finish_all()  # closed between the poll and the step
        except BaseException as error:
            self._give_up(target, error)

    @staticmethod
    def _give_up(target: Submitted, error: BaseException) -> None:
        """End the calls of one channel; the others' have nothing to do with it."""
        try:
            target.give_up(error)
        except BaseException as second:
            report(_log, second, "a channel's submitted calls were ended, but not cleanly")

    def _until_timer(self) -> float | None:
        with self._lock:
            return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _due(self) -> list[tuple[Submitted, int, float]]:
        due = []
        now = time.monotonic()
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.target is None:
                    self._cancelled -= 1
                else:
                    due.append((timer.target, timer.call, timer.timeout))
                    timer.target = None
        return due


class _Process:
    """The reader of this process; a forked child has none, and a new lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reader: _Reader | None = None

    def _forget(self) -> object:
        parents = self.lock, self.reader
        self.lock, self.reader = threading.Lock(), None
        return parents


_process: Final = _Process()


def reader() -> _Reader:
    """The reader of this process; a forked child makes its own."""
    known = _process.reader
    if known is not None and known.owner == os.getpid():
        return known
    _forks.watch(_process)
    with _process.lock:
        known = _process.reader
        if known is None or known.owner != os.getpid():
            known = _process.reader = _Reader()
        return known
