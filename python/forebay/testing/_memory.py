"""Connections within one process, over wires that fail where a test wants it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator

from forebay._core import MessageConnection
from forebay.testing._link import Link, tcp_pair
from forebay.testing._wire import Wire
from forebay.transport import AsyncConnection, ConnectionLimits
from forebay.transport._internal import Handler, run_handler

SCHEME = "mem"

_numbers = itertools.count(1)


@contextlib.asynccontextmanager
async def connection_pair(
    *, there: Wire | None = None, back: Wire | None = None, limits: ConnectionLimits | None = None
) -> AsyncIterator[tuple[AsyncConnection, AsyncConnection]]:
    """Two connected ends, with no listener, address or port.

    Args:
        there: what the first sends to the second passes over it; without one nothing is in between.
        back: what the second sends to the first.
        limits: of both ends.

    Both are closed at the end of the block. The loop that runs steps both.
    """
    async with contextlib.AsyncExitStack() as stack:
        if there is None and back is None:
            one, other = socket.socketpair()
            link = None
        else:
            one, here = await tcp_pair()
            stack.callback(one.close)
            stack.callback(here.close)
            beyond, other = await tcp_pair()
            link = Link(here, beyond, there or Wire(), back or Wire())
            running = asyncio.create_task(link.run())
            stack.push_async_callback(_ended, running)
        first = _end(one, "the second end", limits)
        stack.callback(first.close)
        second = _end(other, "the first end", limits)
        stack.callback(second.close)
        loop = asyncio.get_running_loop()
        first.bind(loop)
        second.bind(loop)
        await first.handshake()
        await second.handshake()
        ends = AsyncConnection(first, SCHEME), AsyncConnection(second, SCHEME)
        if link is not None:
            link.armed.set()
        yield ends


def _end(own: socket.socket, peer: str, limits: ConnectionLimits | None) -> MessageConnection:
    own.setblocking(False)
    return MessageConnection(
        own.detach(), peer=peer, trusted=True, limits=(limits or ConnectionLimits()).of_connection()
    )


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class MemoryListener:
    """A listener that only its own `connect` reaches; made by `memory_listen`.

    Attributes:
        url: a name for messages, as `mem://1`.
    """

    def __init__(self, handler: Handler) -> None:
        self.url = f"{SCHEME}://{next(_numbers)}"
        self._handler = handler

    @contextlib.asynccontextmanager
    async def connect(
        self,
        *,
        there: Wire | None = None,
        back: Wire | None = None,
        limits: ConnectionLimits | None = None,
    ) -> AsyncIterator[AsyncConnection]:
        """A connection to the handler, which runs in a separate task for as long as the block."""
        async with connection_pair(there=there, back=back, limits=limits) as (ours, theirs):
            task = asyncio.create_task(self._serve(theirs))
            try:
                yield ours
                await ours.aclose()
                await asyncio.wait([task], timeout=1.0)
            finally:
                await _ended(task)

    async def _serve(self, connection: AsyncConnection) -> None:
        try:
            await run_handler(self._handler, connection, self.url)
        finally:
            connection.abort()


def memory_listen(handler: Handler) -> MemoryListener:
    """Serve `handler` to this process alone, as `forebay.transport.listen` does to all."""
    return MemoryListener(handler)
