"""rpc: calls of methods of objects in other processes, over `forebay.transport`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy
from forebay.rpc._channel import Channel
from forebay.rpc._connect import PendingChannel, connect
from forebay.rpc._running import Running, current
from forebay.rpc._serve import serve_connection
from forebay.rpc._stream import Stream
from forebay.rpc.client.client import Client

if TYPE_CHECKING:
    from forebay.rpc._async_channel import AsyncChannel
    from forebay.rpc._async_stream import AsyncStream
    from forebay.rpc._server import Server, serve
    from forebay.rpc.client.async_client import AsyncClient

__all__ = [
    "AsyncChannel",
    "AsyncClient",
    "AsyncStream",
    "Channel",
    "Client",
    "PendingChannel",
    "Running",
    "Server",
    "Stream",
    "connect",
    "current",
    "serve",
    "serve_connection",
]

# These import asyncio, which the blocking face does without.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "_async_channel": ("AsyncChannel",),
        "client.async_client": ("AsyncClient",),
        "_async_stream": ("AsyncStream",),
        "_server": ("Server", "serve"),
    },
)
