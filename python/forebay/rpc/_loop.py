"""A channel on an event loop: one reader for all its calls, in the loop's own thread."""

from __future__ import annotations

import asyncio
from asyncio import get_running_loop
from typing import TYPE_CHECKING, Any

from forebay._core import OUTBOX_BYTES_HIGH, OUTBOX_BYTES_LOW, Connection
from forebay.errors import BusyError, DeadlineError
from forebay.rpc._unanswered import no_reply
from forebay.rpc._watch import Watch

if TYPE_CHECKING:
    from forebay.rpc._channel import Channel
    from forebay.rpc._stream_loop import Mailbox

__all__ = ["LoopBinding"]


class LoopBinding:
    """What a channel holds while it belongs to a loop.

    Made by the first awaited call, released by `unbind`. Callbacks are registered once, not
    per call; a writer only while the kernel does not take everything.
    """

    __slots__ = (
        "_channel",
        "_connection",
        "_futures",
        "_loop",
        "_owed",
        "_room",
        "_watches",
        "_writing",
        "streams",
    )

    def __init__(self, channel: Channel, connection: Connection):
        self._channel = channel
        self._connection = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watches: list[Watch] = []
        self._futures: dict[int, asyncio.Future[Any]] = {}
        self._owed: set[int] = set()  # calls that go on when their waiter leaves
        self._room: list[asyncio.Future[None]] = []
        self._writing = False
        self.streams: dict[int, Mailbox] = {}
        """Streams that are open, by the numbers of their calls."""

    async def call(
        self,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        timeout: float | None,
        generation: int | None,
    ) -> Any:
        """Start a call, await its reply, decode it."""
        loop = get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        channel, connection = self._channel, self._connection
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

    async def finish(self, call: int, timeout: float | None) -> Any:
        """Await the reply to a call that was begun, and decode it; it goes on if nobody waits."""
        if call in self._channel._kept:
            return self._channel._finish(self._channel._kept.pop(call))
        loop = get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        connection = self._connection
        connection.hand_over(call, True)
        self._owed.add(call)
        future = self._futures[call] = loop.create_future()
        if connection.outbox_bytes and not self._writing:
            self._start_writing()
        loop.call_soon(self._on_ready)  # it may be there already
        try:
            async with asyncio.timeout(timeout):
                outcome = await future
        except BaseException as error:
            if self._futures.pop(call, None) is not None and not connection.closed:
                connection.hand_over(call, False)
            elif future.done() and not future.cancelled():
                # The waiter left in the turn in which the reply came: it is kept for the next one.
                # `_complete` keeps what comes after the future was cancelled.
                self._channel._kept[call] = future.result()
            if isinstance(error, TimeoutError):
                raise no_reply(self._channel.name, timeout) from None
            raise
        finally:
            self._owed.discard(call)
        return self._channel._finish(outcome)

    async def ready(self, timeout: float | None) -> float | None:
        """Bind to the running loop, and wait until the outbox has room for a call.

        Returns:
            What is left of the time.
        """
        loop = get_running_loop()
        if self._loop is not loop:
            self._bind(loop)
        return await self._wait_for_room(timeout) if self._writing else timeout

    def written(self) -> None:
        """Frames may have been queued: have them written."""
        if self._connection.outbox_bytes and not self._writing:
            self._start_writing()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop, while it is bound."""
        return self._loop

    def unbind(self) -> None:
        """Let go of the loop; BusyError while calls are in flight."""
        in_flight = len(self._futures) + len(self.streams)
        if in_flight and self._loop is not None and not self._loop.is_closed():
            raise BusyError(
                f"channel {self._channel.name!r} has {in_flight} awaited calls and streams in"
                " flight; await, cancel or close them before unbind()"
            )
        self.release()

    def release(self) -> None:
        """Remove every callback."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._stop_watching()
        self._channel._bound = False
        if not self._connection.closed:
            self._connection.detach()

    def finish_all(self) -> None:
        """Hand out what the closed connection ended."""
        for call, outcome in self._connection.receive(self._channel._number):
            self._complete(call, outcome)
        self._tell_streams()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        channel = self._channel
        if self._loop is not None:
            if not self._loop.is_closed():
                raise BusyError(
                    f"channel {channel.name!r} is bound to another event loop; unbind() it there"
                )
            self.release()
        if not self._connection.closed:
            self._watch(loop)
        self._loop = loop
        channel._bound = True
        self._futures.clear()
        self.streams.clear()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Become the reader, with a callback for each descriptor; all of it or nothing."""
        connection, pidfd = self._connection, self._channel._pidfd
        try:
            self._watches.append(Watch(loop, connection.fileno(), self._on_ready))
            if pidfd >= 0:
                self._watches.append(Watch(loop, pidfd, self._on_death))
            connection.attach()  # last: what fails before it leaves the reader's place free
        except BaseException:
            self._stop_watching()
            raise

    def _on_ready(self) -> None:
        loop = self._loop
        if loop is None:
            return  # it was unbound since it was to come back
        if self._writing:
            self._write()
        finished = self._connection.receive(self._channel._number)
        for call, outcome in finished:
            self._complete(call, outcome)
        if self.streams:
            self._tell_streams()
        if self._connection.holds_received:
            loop.call_soon(self._on_ready)
        if not finished and self._connection.over:
            self._stop_watching()

    def _tell_streams(self) -> None:
        for call in self._connection.take_ready():
            mailbox = self.streams.get(call)
            if mailbox is not None:
                mailbox.wake()

    def _on_death(self) -> None:
        self._connection.peer_died()
        self._on_ready()
        self._stop_watching()

    def _stop_watching(self) -> None:
        """The connection is broken: level-triggered descriptors would wake the loop for ever."""
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
            self._channel._kept[call] = outcome

    def _expire(self, call: int, timeout: float) -> None:
        future = self._cancel(call)
        if future is not None and not future.done():
            future.set_exception(no_reply(self._channel.name, timeout))

    def _cancel(self, call: int) -> asyncio.Future[Any] | None:
        future = self._futures.pop(call, None)
        if future is not None and not self._connection.closed:
            self._connection.cancel(call)
            if self._connection.outbox_bytes and not self._writing:
                self._start_writing()
        return future

    def _start_writing(self) -> None:
        if self._watches:
            self._writing = True
            self._watches[0].want(read=True, write=True)

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
            name = self._channel.name
            raise DeadlineError(
                f"{name} takes no bytes: the outbox was full for {timeout} s", timeout=timeout
            ) from None
        return None if until is None else max(0.0, until - loop.time())
