"""rpc: calls of methods of objects in other processes, over `forebay.transport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.rpc._channel import Channel
from forebay.rpc._client import Client
from forebay.rpc._connect import aconnect, connect
from forebay.rpc._running import Running, current
from forebay.rpc._serve import serve_connection
from forebay.rpc._stream import Stream

if TYPE_CHECKING:
    from forebay.rpc._server import Server, serve
    from forebay.rpc._stream_loop import AsyncStream

__all__ = [
    "AsyncStream",
    "Channel",
    "Client",
    "Running",
    "Server",
    "Stream",
    "aconnect",
    "connect",
    "current",
    "serve",
    "serve_connection",
]


def __getattr__(name: str) -> Any:
    """Load what needs asyncio on first use, so that the blocking face does not import it."""
    if name in ("Server", "serve"):
        from forebay.rpc import _server

        return getattr(_server, name)
    if name == "AsyncStream":
        from forebay.rpc._stream_loop import AsyncStream

        return AsyncStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
