"""Submitted calls of a client, each sent until a server starts it."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay import _forks
from forebay._report import RETRY_S, report
from forebay.errors import BrokenError, DeadlineError

if TYPE_CHECKING:
    from forebay.rpc.client.channel_set import Entry
    from forebay.rpc.client.retry import Retry
    from forebay.rpc.client.thread_channels import ThreadChannels

_log = logging.getLogger(__name__)

__all__ = ["Resender", "Submission"]


class Resender:
    """Sends submissions again, in a thread of its own.

    The thread that learns of a refusal completes other futures too, so it must not wait here.
    Each submission has a time for its next attempt; the thread makes one attempt at a time, and
    ends when none is left. An attempt that opens a connection delays the others, which need that
    connection too.

    Threads: any. The lock is taken alone.
    """

    def __init__(self) -> None:
        self._closed = False
        self._renew()
        _forks.watch(self)

    def _renew(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Submission]] = []
        """A heap by the time of the next attempt; the number decides between equal ones."""
        self._numbers = itertools.count()
        self._running = False

    def _forget(self) -> object:
        """In a forked child: the thread and its queue are the parent's."""
        parents = self._changed, self._waiting
        self._renew()
        return parents

    def add(self, submission: Submission, delay: float) -> None:
        """Make its next attempt in `delay` seconds.

        Raises:
            RuntimeError, MemoryError: there is no thread for it; nothing of it is kept.
        """
        entry = (time.monotonic() + delay, next(self._numbers), submission)
        with self._changed:
            heapq.heappush(self._waiting, entry)
            if self._running:
                self._changed.notify()
                return
            try:
                threading.Thread(target=self._run, name="forebay-rpc-again", daemon=True).start()
            except BaseException:
                self._waiting.clear()  # no other one waits without a thread
                raise
            self._running = True

    def close(self) -> None:
        """The channels are closed: make every attempt now, which says so. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        more = True
        while more:
            try:
                more = self._turn()
            except BaseException as error:  # a callback's of the caller, see `_reader`
                report(_log, error, "the thread that sends submitted calls again goes on after")
                time.sleep(RETRY_S)

    def _turn(self) -> bool:
        """Wait for the next one and send it; False if none is left."""
        submission = self._next()
        if submission is None:
            return False
        submission.send_again()
        return True

    def _next(self) -> Submission | None:
        """The next one when its time has come; None if none is left, which ends the thread."""
        with self._changed:
            while self._waiting:
                delay = self._waiting[0][0] - time.monotonic()
                if delay <= 0 or self._closed:
                    return heapq.heappop(self._waiting)[2]
                self._changed.wait(delay)
            self._running = False
            return None


class Submission:
    """A submitted call, which may be sent more than once until a server starts it.

    Args:
        channels: on which it is sent.
        resender: the thread that sends it again.
        call: method, arguments and keyword arguments.
        retry: how long it may try to reach a server.

    Attributes:
        future: the caller's; cancelling it cancels what was sent, and sends nothing more.
    """

    def __init__(
        self,
        channels: ThreadChannels,
        resender: Resender,
        call: tuple[str, tuple[Any, ...], dict[str, Any] | None],
        retry: Retry,
    ):
        self._channels = channels
        self._resender = resender
        self._call = call
        self._retry = retry
        self._sent: Future[Any] | None = None
        self.future: Future[Any] = Future()
        self.future.add_done_callback(self._on_end)

    def send(self) -> None:
        """Send it for the first time, or raise what keeps it from being sent."""
        while (delay := self._attempt()) is not None:
            self._channels.pause(delay)

    def send_again(self) -> None:
        """Try once; the future gets what keeps it from being sent for good."""
        try:
            delay = self._attempt()
        except BaseException as error:
            self._end(error)
        else:
            if delay is not None:
                self._send_later(delay)

    def _attempt(self) -> float | None:
        """Send it unless it was cancelled; seconds until the next attempt if there is to be one."""
        channels, retry = self._channels, self._retry
        if self.future.cancelled():
            return None
        try:
            entry = channels.take(retry)
            sent = None
            try:
                if not self.future.cancelled():  # while a connection was opened
                    sent = entry.channel.submit(*self._call, retry.left())
            finally:
                if sent is None:
                    channels.put(entry)
        except BrokenError as error:
            delay = retry.after(error)
            if delay is None:
                raise
            return delay
        except DeadlineError as error:
            raise retry.named(error) from None
        if sent is None:
            return None
        self._sent = sent
        sent.add_done_callback(partial(self._on_sent_end, entry))
        if self.future.cancelled():  # since it was last asked
            sent.cancel()
        return None

    def _on_sent_end(self, entry: Entry, sent: Future[Any]) -> None:
        try:
            self._channels.put(entry)
        finally:  # the caller waits for its future, even if this raises
            self._finish(sent)

    def _finish(self, sent: Future[Any]) -> None:
        """Complete the caller's future, or send the call again."""
        if sent.cancelled():
            return
        error = sent.exception()
        if error is None:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(sent.result())
        elif (delay := self._retry.after(error)) is not None:
            self._send_later(delay)
        else:
            self._end(self._retry.named(error))

    def _send_later(self, delay: float) -> None:
        try:
            self._resender.add(self, delay)
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _on_end(self, future: Future[Any]) -> None:
        if future.cancelled() and self._sent is not None:
            self._sent.cancel()
