"""rpc: calls of methods of objects in other processes, over `forebay.transport`."""

from __future__ import annotations

from forebay.rpc._channel import Channel
from forebay.rpc._serve import Running, current, serve_connection

__all__ = ["Channel", "Running", "current", "serve_connection"]
