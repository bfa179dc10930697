"""One socket on an event loop, reliably.

uvloop never calls the reader of a descriptor that reports an error: libuv stops the handle at
POLLERR, which a Unix socket reports when its peer is gone with unread bytes. So the loop
watches an epoll of ours, which is readable when the socket is ready in whatever way, and never
reports an error itself. It also makes a change of interest one system call.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

__all__ = ["Watch"]


class Watch:
    """Calls `on_ready` in the loop while `descriptor` is ready for what is wanted.

    Close it before the descriptor. Cost: one descriptor.
    """

    __slots__ = ("_descriptor", "_epoll", "_events", "_loop")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, descriptor: int, on_ready: Callable[[], None]
    ):
        self._loop = loop
        self._descriptor = descriptor
        self._events = select.EPOLLIN
        self._epoll = select.epoll()
        self._epoll.register(descriptor, self._events)
        loop.add_reader(self._epoll.fileno(), on_ready)

    def want(self, *, read: bool, write: bool) -> None:
        """Watch for readable, writable, both or nothing (then a hang-up is not reported either)."""
        events = (select.EPOLLIN if read else 0) | (select.EPOLLOUT if write else 0)
        if events == self._events or self._epoll.closed:
            return
        if not events:
            self._epoll.unregister(self._descriptor)
        elif not self._events:
            self._epoll.register(self._descriptor, events)
        else:
            self._epoll.modify(self._descriptor, events)
        self._events = events

    def close(self) -> None:
        """Stop. Idempotent; also after the loop was closed."""
        if self._epoll.closed:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
