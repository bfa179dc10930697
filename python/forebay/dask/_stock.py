"""Dask's own comms over tornado, where one end of a connection has looked at it already."""

from __future__ import annotations

import socket
import ssl
import struct
from types import SimpleNamespace
from typing import Any, cast

from distributed.comm import core, tcp
from distributed.comm.addressing import get_address_host, resolve_address
from distributed.protocol.core import dumps
from distributed.protocol.serialize import Serialized
from distributed.protocol.utils import pack_frames
from tornado.iostream import IOStream, SSLIOStream

__all__ = [
    "StockTCP",
    "StockTCPConnector",
    "StockTLS",
    "StockTLSConnector",
    "encoded",
    "handshake_info",
    "plain_comm",
    "refuse",
    "tls_comm",
]


class _Begun:
    """A comm whose first message of a direction has gone through already."""

    greeting: Any = None
    """What was read of the peer before somebody asked."""
    has_greeted = False
    """Whether this end's handshake was sent before somebody wrote it."""

    async def read(self, deserializers: Any = None) -> Any:
        greeting, self.greeting = self.greeting, None
        if greeting is not None:
            return greeting
        return await super().read(deserializers)  # type: ignore[misc]

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> Any:
        if self.has_greeted:
            self.has_greeted = False
            return 0
        return await super().write(msg, serializers, on_error)  # type: ignore[misc]


class StockTCP(_Begun, tcp.TCP):
    """Dask's own comm over TCP."""


class StockTLS(_Begun, tcp.TLS):
    """Dask's own comm over TLS."""


class StockTCPConnector(tcp.TCPConnector):
    """Connects as Dask's own does."""

    comm_class = StockTCP


class StockTLSConnector(tcp.TLSConnector):
    """Connects as Dask's own does."""

    comm_class = StockTLS


def plain_comm(connected: socket.socket, local: str, peer: str, deserialize: bool) -> StockTCP:
    """A comm over an accepted connection, which is its own."""
    taken = socket.socket(fileno=connected.detach())
    stream = IOStream(taken, max_buffer_size=tcp.MAX_BUFFER_SIZE)
    return StockTCP(stream, local, peer, deserialize)


async def tls_comm(
    connected: socket.socket, context: ssl.SSLContext, local: str, peer: str, deserialize: bool
) -> StockTLS:
    """A comm over an accepted connection, which is its own, after its handshake.

    Raises:
        OSError: the handshake failed.

    Cancellation: the connection is closed.
    """
    wrapped = context.wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
    stream = SSLIOStream(wrapped, max_buffer_size=tcp.MAX_BUFFER_SIZE)
    try:
        await stream.wait_for_handshake()
    except BaseException:
        stream.close()
        raise
    return StockTLS(stream, local, peer, deserialize)


async def refuse(comm: core.Comm, why: str) -> None:
    """Answer a peer's handshake so that its `connect` raises TypeError with this text."""
    try:
        # Unread bytes at the close would have the kernel reset the connection under the answer.
        await comm.read()
        await comm.write(Serialized({"serializer": "error"}, [why.encode()]))
    finally:
        await comm.close()


def handshake_info(local: str, peer: str) -> dict[str, Any]:
    """What a comm between two addresses tells the other side of itself."""
    hosts = {get_address_host(resolve_address(address)) for address in (local, peer)}
    ends = SimpleNamespace(same_host=len(hosts) == 1)
    return core.Comm.handshake_info(cast("core.Comm", ends))


def encoded(message: Any) -> bytes:
    """A short message as Dask's own comms send it."""
    body = pack_frames(dumps(message))
    return struct.pack("Q", len(body)) + body
