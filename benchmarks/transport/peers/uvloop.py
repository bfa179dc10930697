"""The best that asyncio offers in Python: a BufferedProtocol on uvloop, with our framing.

Read and write are coroutines, as ours are; a message is one frame or several.
Small messages are joined for one write; large ones are received straight into their own memory.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy

from benchmarks.transport.side import Handler, Link, event_loop

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Head bytes, kind, flags, frames, id, time, generation: 24 bytes, as in crates/transport.
HEADER = struct.Struct("<IBBHQII")
LENGTH = struct.Struct("<Q")
# The same with the length of a single frame behind it.
SINGLE = struct.Struct("<IBBHQIIQ")
MESSAGE = 8
NO_DEADLINE = 0xFFFF_FFFF
RECEIVE_BYTES = 256 * 1024
# A message of more than this is not copied to be joined with its header.
JOINED_BYTES_MAX = 32 * 1024
HIGH_BYTES = 512 * 1024

Message = list[bytes]


class Framed(asyncio.BufferedProtocol):
    """A connection."""

    def __init__(self, handler: Handler | None) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._small = memoryview(bytearray(RECEIVE_BYTES))
        self._held = 0
        self._body: memoryview | None = None
        self._lengths: tuple[int, ...] = ()
        self._filled = 0
        self._inbox: deque[Sequence[Buffer]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handler, if this is a server."""
        self._transport = cast(asyncio.Transport, transport)  # which uvloop's own does not inherit
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=HIGH_BYTES)
        if self._handler is not None:
            link = Link(self.write, self.read, list, _same)
            self._task = self._loop.create_task(_run(self._handler, link))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: into the message that is under way, if it is large."""
        if self._body is not None:
            return self._body[self._filled :]
        return self._small[self._held :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was received."""
        if self._body is None:
            self._held += nbytes
            self._parse()
            return
        self._filled += nbytes
        if self._filled == len(self._body):
            body, self._body = self._body, None
            self._deliver(_split(body, self._lengths))

    def _parse(self) -> None:
        small, start, end = self._small, 0, self._held
        while end - start >= SINGLE.size:
            _, _, _, count, _, _, _, length = SINGLE.unpack_from(small, start)
            body = start + SINGLE.size
            if count == 1:
                self._lengths = (length,)
            else:
                body = start + HEADER.size + count * LENGTH.size
                if end < body:
                    break
                self._lengths = struct.unpack_from(f"<{count}Q", small, start + HEADER.size)
                length = sum(self._lengths)
            if end - body >= length:
                whole = small[body : body + length]
                self._deliver([bytes(frame) for frame in _split(whole, self._lengths)])
                start = body + length
                continue
            if body + length - start > RECEIVE_BYTES // 4:
                self._body = numpy.empty(length, numpy.uint8).data  # not zeroed
                self._filled = end - body
                self._body[: self._filled] = small[body:end]
                self._held = 0
                return
            break
        self._held = end - start
        if start and self._held:
            small[: self._held] = small[start:end]

    def _deliver(self, frames: Sequence[Buffer]) -> None:
        self._inbox.append(frames)
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    async def read(self) -> Sequence[Buffer]:
        """The frames of the next message."""
        while not self._inbox:
            self._reader = self._loop.create_future()
            await self._reader
        return self._inbox.popleft()

    async def write(self, frames: Message) -> None:
        """Write a message, and wait while the transport holds too much."""
        if len(frames) == 1:
            frame = frames[0]
            head = SINGLE.pack(0, MESSAGE, 0, 1, 0, NO_DEADLINE, 0, len(frame))
            if len(frame) <= JOINED_BYTES_MAX:
                self._transport.write(head + frame)
            else:
                self._transport.writelines((head, frame))
        else:
            head = HEADER.pack(0, MESSAGE, 0, len(frames), 0, NO_DEADLINE, 0)
            lengths = struct.pack(f"<{len(frames)}Q", *map(len, frames))
            self._transport.writelines((head, lengths, *frames))
        if self._writer is not None:
            await self._writer

    def pause_writing(self) -> None:
        """Make `write` wait."""
        self._writer = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let it go on."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Fail whoever waits."""
        for waiter in (self._reader, self._writer):
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionResetError(f"connection lost: {error}"))


def _split(body: memoryview, lengths: tuple[int, ...]) -> list[memoryview]:
    if len(lengths) == 1:
        return [body]
    frames, start = [], 0
    for length in lengths:
        frames.append(body[start : start + length])
        start += length
    return frames


def _same(message: Sequence[Buffer]) -> Sequence[Buffer]:
    return message


async def _run(handler: Handler, link: Link) -> None:
    await handler(link)


class Side:
    """uvloop and a protocol of our own."""

    def __init__(self, loop: str) -> None:
        self._loop = loop

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop."""
        return event_loop(self._loop)

    async def listen(self, handler: Handler) -> str:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Framed(handler), "127.0.0.1", 0, backlog=512
        )
        return str(self._server.sockets[0].getsockname()[1])

    async def connect(self, address: str) -> Link:
        """Dial a port."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: Framed(None), "127.0.0.1", int(address))
        return Link(protocol.write, protocol.read, list, _same)


def make(loop: str = "uvloop") -> Side:
    """The side; "asyncio" runs it on the stock loop."""
    return Side(loop)
