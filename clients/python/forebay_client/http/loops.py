"""The I/O of a client that the tasks of an event loop use: asyncio's streams."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from forebay_client.errors import BrokenError, ClosedError, DeadlineError
from forebay_client.http.hidden import Payload
from forebay_client.http.limits import CONNECTIONS_MAX, READ_BYTES
from forebay_client.http.threads import Permit, broke, not_secure

__all__ = ["LoopIO"]

CLOSE_S: Final = 1.0
"""For the loop to close connections that were aborted, which takes it a turn or two."""


class StreamWire:
    """A connection of an event loop."""

    __slots__ = ("__weakref__", "_io", "name", "reader", "writer")

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, io: LoopIO
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.name = name
        self._io = io
        io.used.add(self)

    def close(self) -> None:
        """Close it at once; what was not sent is lost, and what waits for it gets its end."""
        self._io.used.discard(self)
        self._io.ending.add(self)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.writer.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until its descriptor is free."""
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class LoopIO:
    """What steps do on an event loop; as `ThreadIO`, with methods to await.

    Attributes:
        used: connections that are open.
        ending: those that were closed, and whose descriptors the loop may still have.
    """

    def __init__(self) -> None:
        self._closed = asyncio.Event()
        self.used: set[StreamWire] = set()
        self.ending: weakref.WeakSet[StreamWire] = weakref.WeakSet()
        self._permits = {
            kind: asyncio.BoundedSemaphore(count) for kind, count in CONNECTIONS_MAX.items()
        }

    async def aclose(self) -> None:
        """End every pause and every wait for a connection, and close all of them.

        Cancellation: they are closed by the loop.
        """
        self._closed.set()
        for wire in list(self.used):
            wire.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                for wire in list(self.ending):
                    await wire.wait_closed()

    async def enter(self, kind: str, until: float) -> Permit:
        """Wait until one more connection may be in use."""
        semaphore = self._permits[kind]
        async with _before(until, "every connection of this client is in use"):
            await semaphore.acquire()
        return Permit(semaphore)

    async def pause(self, seconds: float) -> None:
        """Wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        if self._closed.is_set():
            raise ClosedError("the client was closed meanwhile")

    async def connect(self, host: str, port: int, name: str, until: float) -> StreamWire:
        """Open a TCP connection."""
        try:
            async with _before(until, f"{name} took no connection in time"):
                reader, writer = await asyncio.open_connection(host, port)
        except OSError as error:
            if isinstance(error, DeadlineError):
                raise
            raise BrokenError(
                f"{name} cannot be reached: {error.strerror or error}", delivered="no"
            ) from None
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return StreamWire(reader, writer, name, self)

    async def secure(
        self, wire: StreamWire, context: ssl.SSLContext, host: str, name: str, until: float
    ) -> None:
        """Begin TLS, and verify the certificate."""
        try:
            async with _before(until, f"{name} did not begin TLS in time"):
                await wire.writer.start_tls(context, server_hostname=host)
        except DeadlineError:
            raise
        except (OSError, ValueError) as error:
            raise not_secure(name, error) from None

    async def write(self, wire: StreamWire, payload: Payload, until: float) -> None:
        """Send everything, as far as the kernel and a bounded buffer take it."""
        try:
            async with _before(until, f"{wire.name} did not take the request in time"):
                wire.writer.write(payload.reveal())
                await wire.writer.drain()
        except OSError as error:
            if isinstance(error, DeadlineError):
                raise
            raise broke(wire.name, error) from None

    async def read(self, wire: StreamWire, until: float) -> bytes:
        """Receive something; nothing at the end."""
        try:
            async with _before(until, f"{wire.name} has not answered in time"):
                return await wire.reader.read(READ_BYTES)
        except OSError as error:
            if isinstance(error, DeadlineError):
                raise
            raise broke(wire.name, error) from None


@asynccontextmanager
async def _before(until: float, late: str) -> AsyncIterator[None]:
    """Raise DeadlineError where the body takes longer."""
    deadline = asyncio.timeout(max(0.0, until - time.monotonic()))
    try:
        async with deadline:
            yield
    except TimeoutError:
        if not deadline.expired():
            raise  # the system's own, of a connection
        raise DeadlineError(late) from None
