"""transport: framed messages between processes of one host.

`Connection` is one end; most programs use `forebay.rpc` on top of it.
"""

from __future__ import annotations

from forebay._core import Connection, Frame, Listener, connect_unix

__all__ = ["Connection", "Frame", "Listener", "connect_unix"]
