"""rpc: calls of methods of objects in other processes, over `forebay.transport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.rpc._channel import Channel
from forebay.rpc._client import Client
from forebay.rpc._connect import aconnect, connect
from forebay.rpc._serve import Running, current, serve_connection

if TYPE_CHECKING:
    from forebay.rpc._server import Server, serve

__all__ = [
    "Channel",
    "Client",
    "Running",
    "Server",
    "aconnect",
    "connect",
    "current",
    "serve",
    "serve_connection",
]


def __getattr__(name: str) -> Any:
    """Load the asyncio server on first use, so that the blocking face does not import asyncio."""
    if name in ("Server", "serve"):
        from forebay.rpc import _server

        return getattr(_server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
