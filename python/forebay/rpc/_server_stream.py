"""Streams of results served on an event loop: each is a task of its server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from forebay._core import OUTBOX_BYTES_HIGH, Connection, ItemWriter
from forebay.rpc._codec import BY_NUMBER
from forebay.rpc._running import Running
from forebay.rpc._serve_stream import CANCELLED, READY, close_quietly, iterator_of

if TYPE_CHECKING:
    from forebay.rpc._server import Server

__all__ = ["SessionStreams"]

_SLICE_S = 0.0002
"""How long items that need not be waited for are made before the loop has its turn; as a turn of
the transport."""

_log = logging.getLogger(__name__)


class SessionStreams:
    """The streams of one connection of a server.

    Items are put into the outbox and leave together when the loop comes round, so that those that
    are ready at once are one write.
    """

    def __init__(
        self,
        server: Server,
        connection: Connection,
        tasks: dict[int, asyncio.Task[None]],
        update: Callable[[], None],
        fail: Callable[[Running, int, Exception], None],
    ) -> None:
        self._server = server
        self._connection = connection
        self._tasks = tasks
        self._update = update
        self._fail = fail
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._flushing = False
        self._full = False
        """A stream waits for room in the outbox, not for credit."""

    def start(self, running: Running, number: int, name: str, result: Any) -> None:
        """Send what `result` yields, as a task."""
        task = self._server.start(self._run(running, number, name, result))
        self._tasks[running.id] = task
        task.add_done_callback(partial(self._finish, running.id, result))

    def wake(self) -> None:
        """Credit may have come, or room: wake the streams that wait for it."""
        connection = self._connection
        if connection.closed:
            return
        granted = connection.take_granted()
        if self._full and connection.outbox_bytes <= OUTBOX_BYTES_HIGH:
            self._full = False
            granted = list(self._waiting)
        for call in granted:
            future = self._waiting.get(call)
            if future is not None and not future.done():
                future.set_result(None)

    async def _run(self, running: Running, number: int, name: str, result: Any) -> None:
        connection, call = self._connection, running.id
        try:
            async with asyncio.timeout(running.remaining) as limit:
                if isinstance(result, Coroutine):
                    result = await result
                await self._send(ItemWriter(connection, call, number), number, name, result)
        except Exception as error:
            if connection.closed:
                return
            if isinstance(error, TimeoutError) and limit.expired():
                connection.fail_expired(call)
            else:
                self._fail(running, number, error)
        else:
            if not connection.closed:
                connection.reply(call, number, b"")

    async def _send(self, writer: ItemWriter, number: int, name: str, result: Any) -> None:
        """Send every item; the generator is closed, however that ends."""
        if hasattr(result, "__anext__"):
            items: AsyncIterator[Any] = result
            close = getattr(result, "aclose", None)
        else:
            items = _Stepped(iterator_of(name, result))
            close = items.aclose
        try:
            await self._pump(writer, BY_NUMBER[number].encode, items)
        finally:
            if close is not None:
                await _close(close)

    async def _pump(
        self, writer: ItemWriter, encode: Callable[[Any], Any], items: AsyncIterator[Any]
    ) -> None:
        readiness, begun = writer.readiness(), monotonic()
        while True:
            if readiness != READY:
                await self._until_ready(writer)
                begun = monotonic()
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            readiness = writer.hold(*encode(item))
            self._flush_soon()
            if monotonic() - begun > _SLICE_S:
                await asyncio.sleep(0)
                readiness, begun = (
                    writer.readiness(),
                    monotonic(),
                )  # sees late grants

    async def _until_ready(self, writer: ItemWriter) -> None:
        """Wait until there is credit and room."""
        while (readiness := writer.readiness()) != READY:
            if readiness == CANCELLED:
                raise asyncio.CancelledError  # its task is cancelled later, or, half-closed, never
            await self._wait(writer)

    async def _wait(self, writer: ItemWriter) -> None:
        if self._connection.outbox_bytes > OUTBOX_BYTES_HIGH:
            self._full = True
        future = asyncio.get_running_loop().create_future()
        self._waiting[writer.id] = future
        try:
            await future
        finally:
            del self._waiting[writer.id]

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._connection.closed:
            return
        self._connection.flush()
        if self._waiting:
            self.wake()
        if self._connection.outbox_bytes:
            self._update()

    def _finish(self, call: int, result: Any, task: asyncio.Task[None]) -> None:
        self._tasks.pop(call, None)
        if isinstance(result, Coroutine):
            result.close()  # cancelled before its first step, it would warn
        if task.cancelled() and not self._connection.closed:
            self._connection.fail_cancelled(call)
        self._update()


class _Stepped:
    """A plain iterator, stepped in the loop."""

    __slots__ = ("_items",)

    def __init__(self, items: Any) -> None:
        self._items = items

    def __aiter__(self) -> _Stepped:
        return self

    async def __anext__(self) -> Any:
        for item in self._items:
            return item
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Close the generator: its `finally` runs now."""
        close_quietly(self._items)


async def _close(close: Callable[[], Awaitable[None]]) -> None:
    """Close a generator; what that raises is logged: the stream has ended with something else."""
    try:
        await close()
    except Exception as error:
        _log.warning("a stream raised when it was closed", exc_info=error)
