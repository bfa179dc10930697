"""Waiting for the pool: in a thread, and on an event loop."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING

from forebay import _core
from forebay._notebook import wake_on_interrupt
from forebay.errors import ClosedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


THREADS = 0
"""The group of callers in threads, which may share a service; each event loop has its own."""


class Deadline:
    """A point in monotonic time, or none."""

    __slots__ = ("_at", "timeout")

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self._at = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        """Seconds left, not below 0; None without a deadline."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def within(self, seconds: float) -> Deadline:
        """The earlier of this and so many seconds from now."""
        left = self.left()
        return Deadline(seconds if left is None else min(seconds, left))

    def passed(self) -> bool:
        """Whether it has come."""
        return self._at is not None and time.monotonic() >= self._at


def wait_until(
    core: _core.Pool, found: Callable[[_core.WakeQueue], bool], deadline: Deadline
) -> bool:
    """Block this thread until `found` is true or the deadline passes; returns its last answer.

    Signal handlers run meanwhile, and this raises what they raise.
    """
    queue = _core.WakeQueue()
    while not found(queue):
        if deadline.passed():
            return False
        core.wait(queue, deadline.left())
        queue.drain()
    return True


class LoopWaiter:
    """The waiters of one pool on one event loop: one queue, watched only while somebody waits.

    The loop also drives the pool meanwhile, because no thread may be there to do it.
    """

    def __init__(self, core: _core.Pool, loop: asyncio.AbstractEventLoop, group: int) -> None:
        self._core = core
        self.loop = loop
        self.group = group
        """Of the callers on this loop, which may share a service; no other loop has the same."""
        self._queue = _core.WakeQueue()
        self._waiting: set[asyncio.Future[None]] = set()
        self._ready = -1

    async def wait_until(
        self, found: Callable[[_core.WakeQueue], bool], deadline: Deadline
    ) -> bool:
        """Wait until `found` is true or the deadline passes.

        Cancellation: safe.
        """
        import asyncio

        while not found(self._queue):
            if deadline.passed():
                return False
            future: asyncio.Future[None] = self.loop.create_future()
            self._enter(future)
            try:
                async with asyncio.timeout(deadline.left()):
                    await future
            except TimeoutError:
                pass  # `found` is asked once more
            finally:
                self._exit(future)
        return True

    def _enter(self, future: asyncio.Future[None]) -> None:
        if not self._waiting:
            self._ready = self._core.watch()  # a duplicate: the pool may be closed before `_exit`
            self.loop.add_reader(self._queue.fileno(), self._wake)
            self.loop.add_reader(self._ready, self._drive)
        self._waiting.add(future)
        self.loop.call_soon(self._drive)  # what came before the loop watched

    def _exit(self, future: asyncio.Future[None]) -> None:
        self._waiting.discard(future)
        if not self._waiting:
            if not self.loop.is_closed():
                self.loop.remove_reader(self._queue.fileno())
                self.loop.remove_reader(self._ready)
            os.close(self._ready)

    def _drive(self) -> None:
        if self._waiting:
            with contextlib.suppress(ClosedError):  # the callers that wait get the error
                self._core.drive()
            self._wake()

    def _wake(self) -> None:
        if self._queue.drain():
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)


class LoopWaiters:
    """The waiters of one pool, by their event loop. Thread-safe."""

    __slots__ = ("_core", "_groups", "_known", "_lock")

    def __init__(self, core: _core.Pool) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._groups = itertools.count(THREADS + 1)
        self._known: dict[int, LoopWaiter] = {}

    def here(self) -> LoopWaiter:
        """The waiter of the running event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        known = self._known.get(id(loop))
        if known is None or known.loop is not loop:
            known = LoopWaiter(self._core, loop, next(self._groups))
            with self._lock:
                kept = self._known.items()
                self._known = {key: other for key, other in kept if not other.loop.is_closed()}
                self._known[id(loop)] = known
            wake_on_interrupt(loop)
        return known

    def forked(self) -> None:
        """In a forked child: another thread may have held the lock."""
        self._lock = threading.Lock()
