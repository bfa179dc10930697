"""The calling end of a stream of results, on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from forebay._core import ItemReader
from forebay.errors import BusyError, Error
from forebay.rpc._unanswered import no_end

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["AsyncStream", "Mailbox"]


class Mailbox:
    """How a stream that waits on an event loop is woken."""

    __slots__ = ("expired", "future")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] | None = None
        self.expired = False

    def wake(self) -> None:
        """Something has come."""
        future = self.future
        if future is not None and not future.done():
            future.set_result(None)

    def expire(self) -> None:
        """The time of the whole stream has run out."""
        self.expired = True
        self.wake()


class AsyncStream:
    """What `Stream` is for threads: an async iterator and context manager.

    Made by `AsyncChannel.stream`.

    The call is sent when it is entered or first iterated, which binds the channel to the running
    loop; the timeout counts from there.
    Leaving it by `break` outside of `async with` cancels the call with its last reference.

    Loop affinity: the loop that starts it; one task at a time, a second one gets BusyError.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_beginning",
        "_channel",
        "_decode",
        "_generation",
        "_mailbox",
        "_reader",
        "_ready",
        "_timeout",
        "_timer",
    )

    def __init__(
        self,
        channel: Channel,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        *,
        timeout: float | None,
        credit: int,
        generation: int,
    ) -> None:
        self._channel = channel
        self._decode = channel._decode
        self._arguments: tuple[Any, ...] | None = (method, args, kwargs, credit)
        """Until the call is sent, or the stream closed."""
        self._beginning = False
        self._timeout = timeout
        self._generation = generation
        self._mailbox = Mailbox()
        self._reader: ItemReader | None = None
        self._ready: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Any:
        """Await the next item; errors as of `Stream`.

        Cancellation: safe. No item is lost, and the stream goes on until it is closed.
        """
        if self._ready and not self._mailbox.expired:
            outcome = self._ready.pop()
        else:
            outcome = await self._receive()
        if type(outcome) is bytes:
            return self._decode(outcome, None)
        return self._channel._finish(outcome)

    async def _receive(self) -> Any:
        if self._arguments is not None:
            await self._begin()
        while (reader := self._reader) is not None:
            if self._mailbox.expired:
                self.close()
                raise no_end(self._channel.name, self._timeout)
            try:
                came = reader.poll()
            except BaseException:
                self.close()
                raise
            if type(came) is not list:
                self.close()
                if came is not None:
                    self._channel._finish(came)  # it raises
                break
            self._channel.on_loop._queued()
            if came:
                self._ready = came
                return came.pop()
            await self._wait()
        raise StopAsyncIteration

    async def _begin(self) -> None:
        """Send the call. If it is cancelled before, the next request for an item sends it."""
        if self._beginning:
            raise self._busy()
        self._beginning = True
        try:
            await self._send()
        except asyncio.CancelledError:
            self._stop_timer()
            raise
        except BaseException:
            self.close()
            raise
        finally:
            self._beginning = False

    async def _send(self) -> None:
        assert self._arguments is not None
        method, args, kwargs, credit = self._arguments
        channel, timeout = self._channel, self._timeout
        head, segments = channel._encode_call(method, args, kwargs)
        face = channel.on_loop
        if timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(timeout, self._mailbox.expire)
        left = await face._ready(timeout)
        if self._arguments is None:
            return  # closed meanwhile
        self._arguments = None
        self._reader = ItemReader(
            channel._connection,
            channel._number,
            head,
            segments,
            left,
            self._generation,
            credit,
            True,
        )
        face._streams[self._reader.id] = self._mailbox
        face._queued()

    async def _wait(self) -> None:
        mailbox = self._mailbox
        if mailbox.future is not None:
            raise self._busy()
        mailbox.future = asyncio.get_running_loop().create_future()
        try:
            await mailbox.future
        finally:
            mailbox.future = None

    def _busy(self) -> BusyError:
        return BusyError(
            f"another task waits for an item of this stream of {self._channel.name!r};"
            " give each task a stream of its own"
        )

    def close(self) -> None:
        """Leave the stream; never waits. Idempotent. Loop affinity: its loop."""
        self._arguments = None
        self._ready.clear()
        self._stop_timer()
        reader, self._reader = self._reader, None
        if reader is None:
            return
        face = self._channel.on_loop
        face._streams.pop(reader.id, None)
        with contextlib.suppress(Error):  # closed, or another process's after a fork
            reader.leave()
            face._queued()
        self._mailbox.wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def aclose(self) -> None:
        """Leave the stream; never waits. Idempotent. Cancellation: nothing to roll back."""
        self.close()

    async def __aenter__(self) -> AsyncStream:
        if self._arguments is not None:
            await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Perhaps in another thread than the loop's, so that nothing of the loop may be touched. A
        # cancel that the kernel does not take at once goes out with what already waits there.
        reader = self._reader
        if reader is not None:
            self._channel.on_loop._streams.pop(reader.id, None)
            with contextlib.suppress(Error):  # closed, or another process's after a fork
                reader.leave()
