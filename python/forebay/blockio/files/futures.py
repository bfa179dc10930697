"""Futures of batches: one thread completes those of a queue, all that are done in one go.

The thread is started with the first batch. It sleeps in poll(2), without the interpreter's lock,
and is a daemon: it keeps no process from ending. The thread that takes a batch's ticket out of
`_waiting` completes its future; that is one call of a dict, so it happens once, and needs no lock.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from forebay import _forks
from forebay._report import RETRY_S, guarded, report
from forebay.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay._core import BlockBatch, BlockPort
    from forebay.blockio.files.queue import Queue

__all__ = ["BlockFuture", "Futures", "tickets"]

_log = logging.getLogger(__name__)
tickets: Final = itertools.count(1)
"""Names of batches, of all queues."""


class BlockFuture(Future[Any]):
    """The result of a batch, see `Queue.submit`."""

    def __init__(self, queue: Queue, port: BlockPort, ticket: int):
        super().__init__()
        self._queue: Queue | None = queue  # whose end would end the thread that completes this
        self._port = port
        self._ticket = ticket
        self._batch: BlockBatch | None = None
        self._over = False

    def cancel(self) -> bool:
        """Stop waiting, unless it is done; the buffers stay until the kernel has released them."""
        if not super().cancel():
            return False
        if self._batch is not None:
            with contextlib.suppress(ClosedError):
                self._port.detach(self._ticket, self._batch)
        return True

    def complete(self) -> None:
        """Complete the future with the outcome of the batch."""
        batch, self._batch, self._queue = self._batch, None, None
        if batch is None or not self.set_running_or_notify_cancel():
            return
        try:
            result = batch.result()
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def give_up(self) -> None:
        """End it with `ClosedError`."""
        if self.set_running_or_notify_cancel():
            self.set_exception(ClosedError("the block queue was closed"))


class Futures:
    """The futures of one queue's submitted batches, and the thread that completes them."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._port: BlockPort | None = None
        self._thread: threading.Thread | None = None
        self._stop = -1
        self._closing = False
        self._waiting: dict[int, BlockFuture] = {}
        self._ended: deque[int] = deque()
        """Tickets of batches that have ended, until their futures have."""
        self._pid = os.getpid()

    def submit(self, queue: Queue, start: Callable[[BlockPort, int], BlockBatch]) -> BlockFuture:
        """Have `start` hand a batch over, and return its future."""
        port = self._port or self._start(queue)
        ticket = next(tickets)
        future = BlockFuture(queue, port, ticket)
        self._waiting[ticket] = future
        try:
            batch = start(port, ticket)
        except BaseException:
            self._waiting.pop(ticket, None)
            raise
        # The thread may have taken the ticket already. Each side first writes its part, then reads
        # the other's, so that one of them sees both.
        future._batch = batch
        if future._over or batch.done:
            self._complete(ticket)
        return future

    def close(self) -> None:
        """End the thread; what is left ends with `ClosedError`. Idempotent."""
        with self._starting:
            thread, self._closing = self._thread, True
            if thread is None:
                return
            if self._stop >= 0:
                os.eventfd_write(self._stop, 1)
        if thread is not threading.current_thread():
            thread.join()

    def _start(self, queue: Queue) -> BlockPort:
        with self._starting:
            if self._port is not None:
                return self._port
            if self._closing:
                raise ClosedError("the block queue is closed; make another one")
            _forks.watch(queue)
            port = queue.port(True)
            self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            poller = select.poll()
            poller.register(port.fileno(), select.POLLIN)
            poller.register(self._stop, select.POLLIN)
            self._thread = threading.Thread(
                target=self._serve, args=(port, poller), name="forebay-block-futures", daemon=True
            )
            self._thread.start()
            self._port = port
            weakref.finalize(queue, self._end_later).atexit = False
            return port

    def _end_later(self) -> None:
        """The queue is gone, and so nothing is in flight: have the thread end."""
        if os.getpid() != self._pid:
            return  # a forked child has no such thread, and the descriptor wakes its parent's
        with self._starting:
            self._closing = True
            if self._stop >= 0:
                os.eventfd_write(self._stop, 1)

    def _serve(self, port: BlockPort, poller: select.poll) -> None:
        """Run the thread, which only the end of the queue may end: it is not restarted."""
        serving = True
        while serving:
            try:
                serving = self._turn(port, poller)
            except BaseException as error:
                report(_log, error, "the thread of block futures goes on after")
                time.sleep(RETRY_S)
                serving = not self._closing
        self._end(port)

    def _turn(self, port: BlockPort, poller: select.poll) -> bool:
        """Complete what is done; False once the queue is closed."""
        if not self._ended:
            poller.poll()
        closing = self._closing  # read first: what a close has ended is in the turn after it
        self._ended.extend(port.turn())
        while self._ended:
            self._heard(self._ended[0])
            self._ended.popleft()
        return not closing

    def _end(self, port: BlockPort) -> None:
        port.close()
        with self._starting:
            stop, self._stop, self._closing = self._stop, -1, True
            os.close(stop)
        for ticket in tuple(self._waiting):
            future = self._waiting.pop(ticket, None)
            if future is not None:
                guarded(_log, "block", BlockFuture.give_up, future)

    def _heard(self, ticket: int) -> None:
        future = self._waiting.get(ticket)
        if future is None:
            return
        future._over = True
        if future._batch is not None and self._waiting.pop(ticket, None) is not None:
            guarded(_log, "block", BlockFuture.complete, future)

    def _complete(self, ticket: int) -> None:
        future = self._waiting.pop(ticket, None)
        if future is not None:
            future.complete()
