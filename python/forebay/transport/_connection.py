"""The two faces of a connection of messages."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from forebay._core import Buffer, MessageConnection
from forebay.errors import BrokenError, ClosedError
from forebay.transport._socket import name_of
from forebay.transport._tls import TlsPeer, peer_of

__all__ = ["AsyncConnection", "Connection", "Frames", "Message"]

Message = list[Any]
"""A received message: a list of frames, each a bytes-like object with memory of its own.

Frames below 64 KiB are `bytes`, others writable buffers aligned to 64 bytes. Over `shm://`
those are read-only, and lie in memory of the sender, who gets it back when they are dropped."""

Frames = Any
"""A message to send: one buffer, or a list or tuple of 1 to 65,535 of them.

A buffer is anything with the buffer protocol, of any item format, C-contiguous."""

Allocate = Callable[[int], Any]
"""Gives a writable buffer of so many bytes to receive a long frame into."""

CLOSE_TIMEOUT_S = 5.0
"""How long `aclose` and `close` wait for what is queued to leave."""


class _Face:
    """What both faces have in common."""

    __slots__ = ("_core", "local_address", "peer_address")

    def __init__(self, core: MessageConnection, scheme: str) -> None:
        self._core = core
        with socket.socket(fileno=os.dup(core.fileno())) as shown:
            self.local_address = name_of(scheme, shown.getsockname())
            try:
                self.peer_address = name_of(scheme, shown.getpeername())
            except OSError as error:  # of a TCP connection that was reset
                raise BrokenError(f"{core.peer}: {error.strerror}", delivered="no") from error

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} to {self.peer_address}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether it is of no more use: closed here, or by the peer, even if no caller reads."""
        return self._core.closed

    @property
    def tls(self) -> TlsPeer | None:
        """Who the peer is and what was agreed on; None without TLS."""
        return peer_of(self._core)

    def metrics(self) -> dict[str, int]:
        """What was counted: messages and bytes, sent, received, copied, and what waits here.

        Keys: sent_messages, received_messages, sent_bytes, received_bytes, copied_bytes (between
        buffers of this process: small frames alone), outbox_bytes, inbox_bytes, inbox_messages,
        lent_frames (that the peer of an `shm://` connection may still read).
        """
        return self._core.metrics()

    def allocate(self, n_bytes: int) -> Buffer:
        """Memory that the peer of an `shm://` connection sees: frames in it are sent uncopied.

        Fill it in, send it or a part of it (as a memoryview or an array), then write it no more:
        the peer reads it where it lies. It is used again once this side has dropped it and the
        peer the frames that it got of it, so that pages stay mapped on both sides.

        Args:
            n_bytes: the size. Below 64 KiB a frame is copied all the same.

        Raises:
            LimitError: 256 MiB of this end are in use (`region_bytes_max`).
            ConfigError: the connection shares no memory.
            ClosedError, BrokenError: as `send`.

        Threads: any. Cost: about a microsecond; a page fault for each page never used before.
        """
        return self._core.allocate(n_bytes)

    def is_lent(self, buffer: Any) -> bool:
        """Whether the peer may still read memory that was sent: then do not write it.

        Args:
            buffer: what `allocate` gave or what lies in an arena, or a part of it; any buffer.

        Returns:
            True while the peer of an `shm://` connection holds a frame of the block in which the
            buffer lies. False over sockets: there a buffer is yours again when `send` has returned.

        Raises:
            ClosedError: this end is closed, so the answer is unknown; memory of an arena is still
                kept for as long as the peer reads it.

        Threads: any. Cost: a comparison for each lent frame, 1,024 at most; no system call.
        """
        return self._core.is_lent(buffer)

    def abort(self) -> None:
        """Close at once: what is queued is dropped, waiting callers get ClosedError. Idempotent."""
        self._core.close()


class AsyncConnection(_Face):
    """One end of a connection on an event loop.

    Messages arrive whole and in order. Many tasks may send, one at a time may receive.

    Attributes:
        send: `await send(frames)`. What the kernel does not take at once is queued; it returns when
            the caller may change its buffers again (frames up to 64 KiB are copied where they have
            to wait, longer ones never) and the outbox is below its high mark. Over `shm://` a frame
            above 64 KiB of an `Arena`, or of `allocate`, is the peer's to read until it drops it.
            Cancellation stops the waiting alone: the message still goes out whole, its buffers are
            the caller's. Raises BrokenError (`.delivered` says whether the peer may have it),
            LimitError, ProtocolError, ClosedError.
        send_many: `await send_many(messages)`, the same for several in as few calls as possible.
        recv: `await recv()` gives the next message, see `Message`. Cancellation loses nothing.
            Raises BrokenError once the peer has closed and everything was taken, ProtocolError,
            ClosedError; BusyError while another task waits.
        recv_many: `await recv_many(count)` gives a list of those that are there, at least one. With
            up to 300 at a time CPython frees them before it looks for cycles among them (`gc`).
        local_address: of this end, as a URL.
        peer_address: of the other one.

    Affinity: the loop in which it was made, and its thread.
    """

    __slots__ = ("_loop", "recv", "recv_many", "send", "send_many")

    send: Callable[[Frames], Awaitable[None]]
    send_many: Callable[[Iterable[Frames]], Awaitable[None]]
    recv: Callable[[], Awaitable[Message]]
    recv_many: Callable[[int], Awaitable[list[Message]]]

    def __init__(self, core: MessageConnection, scheme: str) -> None:
        super().__init__(core, scheme)
        self._loop = asyncio.get_running_loop()
        self.send, self.send_many = core.send, core.send_many
        self.recv, self.recv_many = core.recv, core.recv_many

    async def aclose(self) -> None:
        """Send what is queued, for at most 5 s, then close. Idempotent.

        Cancellation: it closes at once.
        """
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._core.flushed()
        except (TimeoutError, BrokenError, ClosedError):
            pass  # the peer takes no more
        finally:
            self._core.close()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and core.fileno() >= 0:
            warnings.warn(f"{self!r} was never closed", ResourceWarning, source=self, stacklevel=2)
            with contextlib.suppress(RuntimeError):  # its loop is closed, and took it along
                self._loop.call_soon_threadsafe(core.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            self.abort()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages until the peer closes."""
        while True:
            try:
                message = await self.recv()
            except BrokenError:
                if self._core.closed_cleanly:
                    return
                raise
            yield message


class Connection(_Face):
    """One end of a connection for threads.

    Any thread may send, one at a time may receive. Waiting releases the GIL and is interrupted by
    Ctrl-C; after an interrupted or late `send` the message still goes out whole.
    """

    __slots__ = ()

    def send(self, frames: Frames, *, timeout: float | None = None) -> None:
        """Send a message as `AsyncConnection.send`; DeadlineError after `timeout` seconds."""
        self._core.send_blocking(frames, timeout)

    def send_many(self, messages: Sequence[Frames], *, timeout: float | None = None) -> None:
        """Send several messages in as few system calls as possible."""
        self._core.send_many_blocking(messages, timeout)

    def recv(self, *, timeout: float | None = None) -> Message:
        """The next message; errors as of `AsyncConnection.recv`, and DeadlineError."""
        return self._core.recv_blocking(timeout)

    def close(self) -> None:
        """Send what is queued, for at most 5 s, then close. Idempotent."""
        try:
            with contextlib.suppress(BrokenError, ClosedError):
                self._core.flush_blocking(CLOSE_TIMEOUT_S)
        finally:
            self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def __iter__(self) -> Iterator[Message]:
        """The messages until the peer closes."""
        while True:
            try:
                message = self.recv()
            except BrokenError:
                if self._core.closed_cleanly:
                    return
                raise
            yield message
