"""The calling end of a connection, on an event loop.

Not a procedure of `forebay._steps` with `Channel`: by one, its echo of 1 kB took 34.4 us instead of
31.8, by turns.
"""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any

from forebay._core import OUTBOX_BYTES_HIGH, OUTBOX_BYTES_LOW, Connection
from forebay._notebook import wake_on_interrupt
from forebay.errors import BusyError, DeadlineError
from forebay.rpc._async_stream import AsyncStream, Mailbox
from forebay.rpc._stream import CREDIT
from forebay.rpc._unanswered import no_reply
from forebay.rpc._watch import Watch

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["AsyncChannel"]


class AsyncChannel:
    """A channel on the running event loop: the names of `Channel`, awaited.

    Made by `async with rpc.connect(url)`, or of a channel by its `on_loop`. The first call binds
    the channel to the running loop, until `unbind`; in between, threads cannot call on it.

    Attributes:
        channel: the channel itself, with the face for threads.

    Affinity: the loop to which the channel is bound; any number of tasks.
    Cost: one reader for all calls, in the loop's own thread. Callbacks are registered once, not for
    each call; a writer only while the kernel does not take everything.
    """

    __slots__ = (
        "_connection",
        "_corked",
        "_flushing",
        "_futures",
        "_loop",
        "_owed",
        "_room",
        "_streams",
        "_watches",
        "_writing",
        "channel",
    )

    def __init__(self, channel: Channel, connection: Connection):
        self.channel = channel
        self._connection = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watches: list[Watch] = []
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._owed: set[int] = set()  # calls that go on when their waiter leaves
        self._room: list[asyncio.Future[None]] = []
        self._writing = False
        self._corked = False
        self._flushing = False
        """A flush is due at the end of this turn."""
        self._streams: dict[int, Mailbox] = {}
        """Streams that are open, by the numbers of their calls."""

    async def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        generation: int | None = None,
    ) -> Any:
        """Call `method` and await its result; arguments and errors as for `Channel.call`.

        Cancellation: safe. A cancel frame goes out, the late reply is dropped, the channel
        stays usable.
        """
        loop = get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        channel, connection = self.channel, self._connection
        head, segments = channel._encode_call(method, args, kwargs)
        left = timeout
        if self._writing:
            left = await self._wait_for_room(timeout)
        if generation is None:
            generation = channel.generation
        call = connection.start(channel._number, head, segments, left, generation)
        future = self._futures[call] = loop.create_future()
        if connection.outbox_bytes and not self._writing:
            self._start_writing()
        timer = None if left is None else loop.call_later(left, self._expire, call, timeout or left)
        try:
            outcome = await future
        except asyncio.CancelledError:
            self._cancel(call)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if type(outcome) is bytes:
            return channel._decode(outcome, None)
        return channel._finish(outcome)

    def cork(self) -> None:
        """From now on write the calls of one turn of the loop together, when it has ended.

        For many calls at once from many tasks: none costs a system call of its own, and the server
        reads them together. A call on its own goes out as soon, without waiting for others.
        """
        self._connection.cork()
        self._corked = True

    def stream(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        credit: int = CREDIT,
        generation: int | None = None,
    ) -> AsyncStream:
        """As `Channel.stream`, for `async for` and `async with`, which send the call."""
        if generation is None:
            generation = self.channel.generation
        return AsyncStream(
            self.channel,
            method,
            args,
            kwargs,
            timeout=timeout,
            credit=credit,
            generation=generation,
        )

    async def finish(self, call: int, *, timeout: float | None = None) -> Any:
        """Await the answer to a call that `Channel.begin` started; errors as for `Channel.finish`.

        Cancellation: safe; the call goes on, and may be waited for again.
        """
        if call in self.channel._kept:
            return self.channel._finish(self.channel._kept.pop(call))
        loop = get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        connection = self._connection
        connection.hand_over(call, True)
        self._owed.add(call)
        future = self._futures[call] = loop.create_future()
        if connection.outbox_bytes and not self._writing:
            self._start_writing()
        loop.call_soon(self._on_ready)  # the answer may have been received already
        try:
            async with asyncio.timeout(timeout):
                outcome = await future
        except BaseException as error:
            if self._futures.pop(call, None) is not None and not connection.closed:
                connection.hand_over(call, False)
            elif future.done() and not future.cancelled():
                # The waiter left in the turn in which the reply came: it is kept for the next one.
                # `_complete` keeps what comes after the future was cancelled.
                self.channel._kept[call] = future.result()
            if isinstance(error, TimeoutError):
                raise no_reply(self.channel.name, timeout) from None
            raise
        finally:
            self._owed.discard(call)
        return self.channel._finish(outcome)

    async def _ready(self, timeout: float | None) -> float | None:
        """Bind to the running loop, and wait until the outbox has room for a call.

        Returns:
            What is left of the time.
        """
        loop = get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        return await self._wait_for_room(timeout) if self._writing else timeout

    def _queued(self) -> None:
        """Write the frames that may have been queued."""
        if self._connection.outbox_bytes and not self._writing:
            self._start_writing()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, while it is bound."""
        return self._loop

    @property
    def closed(self) -> bool:
        """As `Channel.closed`."""
        return self.channel.closed

    @property
    def broken(self) -> bool:
        """As `Channel.broken`."""
        return self.channel.broken

    @property
    def leaving(self) -> bool:
        """As `Channel.leaving`."""
        return self.channel.leaving

    @property
    def in_flight(self) -> int:
        """As `Channel.in_flight`."""
        return self.channel.in_flight

    def metrics(self) -> dict[str, int]:
        """As `Channel.metrics`."""
        return self.channel.metrics()

    def unbind(self) -> None:
        """Let go of the loop; see `Channel.unbind`."""
        in_flight = len(self._futures) + len(self._streams)
        if in_flight and self._loop is not None and not self._loop.is_closed():
            raise BusyError(
                f"channel {self.channel.name!r} has {in_flight} awaited calls and streams in"
                " flight; await, cancel or close them before unbind()"
            )
        self._release()

    async def aclose(self) -> None:
        """As `Channel.close`, which never waits. Idempotent."""
        self.channel.close()

    async def __aenter__(self) -> AsyncChannel:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()

    def _release(self) -> None:
        """Remove every callback."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._stop_watching()
        self.channel._bound = False
        if not self._connection.closed:
            self._connection.detach()

    def _finish_all(self) -> None:
        """Complete the calls that the closed connection ended."""
        for call, outcome in self._connection.receive(self.channel._number):
            self._complete(call, outcome)
        self._wake_streams()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        channel = self.channel
        if self._loop is not None:
            if not self._loop.is_closed():
                raise BusyError(
                    f"channel {channel.name!r} is bound to another event loop; unbind() it there"
                )
            self._release()
        if not self._connection.closed:
            self._watch(loop)
        wake_on_interrupt(loop)
        self._loop = loop
        channel._bound = True
        self._futures.clear()
        self._streams.clear()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Become the reader, with a callback for each descriptor; all of it or nothing."""
        connection, pidfd = self._connection, self.channel._pidfd
        try:
            self._watches.append(Watch(loop, connection.fileno(), self._on_ready))
            if pidfd >= 0:
                self._watches.append(Watch(loop, pidfd, self._on_death))
            connection.attach()  # last: a failure before it leaves the connection without a reader
        except BaseException:
            self._stop_watching()
            raise

    def _on_ready(self) -> None:
        loop = self._loop
        if loop is None:
            return  # unbound since this turn was scheduled
        if self._writing:
            self._write()
        finished = self._connection.receive(self.channel._number)
        for call, outcome in finished:
            self._complete(call, outcome)
        if self._streams:
            self._wake_streams()
        if self._corked:
            self._queued()  # such as the answer to a ping
        if self._connection.holds_received:
            loop.call_soon(self._on_ready)
        if not finished and self._connection.over:
            self._stop_watching()

    def _wake_streams(self) -> None:
        for call in self._connection.take_ready():
            mailbox = self._streams.get(call)
            if mailbox is not None:
                mailbox.wake()

    def _on_death(self) -> None:
        self._connection.peer_died()
        self._on_ready()
        self._stop_watching()

    def _stop_watching(self) -> None:
        """The connection is broken: level-triggered descriptors would wake the loop endlessly."""
        for watch in self._watches:
            watch.close()
        self._watches = []
        self._writing = False
        self._wake_room()

    def _complete(self, call: int, outcome: Any) -> None:
        future = self._futures.pop(call, None)
        if future is not None and not future.done():
            future.set_result(outcome)
        elif call in self._owed:
            self.channel._kept[call] = outcome

    def _expire(self, call: int, timeout: float) -> None:
        future = self._cancel(call)
        if future is not None and not future.done():
            future.set_exception(no_reply(self.channel.name, timeout))

    def _cancel(self, call: int) -> asyncio.Future[Any] | None:
        future = self._futures.pop(call, None)
        if future is not None and not self._connection.closed:
            self._connection.cancel(call)
            if self._connection.outbox_bytes and not self._writing:
                self._start_writing()
        return future

    def _start_writing(self) -> None:
        if self._corked and self._loop is not None:
            if not self._flushing:
                self._flushing = True
                self._loop.call_soon(self._flush)
        elif self._watches:
            self._write_when_possible()

    def _write_when_possible(self) -> None:
        self._writing = True
        self._watches[0].want(read=True, write=True)

    def _flush(self) -> None:
        """Write what the calls of a turn have queued; the kernel may take the rest later."""
        self._flushing = False
        connection = self._connection
        if not connection.closed and not connection.flush() and self._watches and not self._writing:
            self._write_when_possible()

    def _write(self) -> None:
        if self._connection.flush():
            self._writing = False
            self._watches[0].want(read=True, write=False)
        if self._connection.outbox_bytes < OUTBOX_BYTES_LOW:
            self._wake_room()

    def _wake_room(self) -> None:
        waiting, self._room = self._room, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _wait_for_room(self, timeout: float | None) -> float | None:
        """Wait until the outbox takes a call; returns what is left of the time."""
        loop = self._loop
        if self._connection.outbox_bytes <= OUTBOX_BYTES_HIGH or loop is None:
            return timeout
        until = None if timeout is None else loop.time() + timeout
        future = loop.create_future()
        self._room.append(future)
        try:
            async with asyncio.timeout_at(until):
                await future
        except TimeoutError:
            name = self.channel.name
            raise DeadlineError(
                f"{name} takes no bytes: the outbox was full for {timeout} s", timeout=timeout
            ) from None
        return None if until is None else max(0.0, until - loop.time())
