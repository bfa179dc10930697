"""transport: messages of several frames between processes, and the wire under `forebay.rpc`.

`connect` and `listen` over TCP and Unix sockets, for event loops and for threads.
"""

from __future__ import annotations

from forebay._core import Frame
from forebay.transport import native
from forebay.transport._connect import Connect, connect
from forebay.transport._connection import AsyncConnection, Connection
from forebay.transport._limits import Limits
from forebay.transport._listen import AsyncListener, Listen, listen

__all__ = [
    "AsyncConnection",
    "AsyncListener",
    "Connect",
    "Connection",
    "Frame",
    "Limits",
    "Listen",
    "connect",
    "listen",
    "native",
]
