"""transport: messages of several frames between processes; also the wire under `forebay.rpc`.

`connect` and `listen` over TCP, TLS and Unix sockets, for event loops and for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._core import Frame
from forebay._lazy import lazy
from forebay.transport import native
from forebay.transport._backoff import backoff
from forebay.transport._connect import Connect, connect
from forebay.transport._connection import AsyncConnection, Connection
from forebay.transport._limits import ConnectionLimits
from forebay.transport._listen import AsyncListener, Listen, listen
from forebay.transport._process_limits import process_metrics, set_process_limits
from forebay.transport._tls import Tls, TlsPeer

if TYPE_CHECKING:
    from forebay.transport._event_loop import EventLoop, new_event_loop

__all__ = [
    "AsyncConnection",
    "AsyncListener",
    "Connect",
    "Connection",
    "ConnectionLimits",
    "EventLoop",
    "Frame",
    "Listen",
    "Tls",
    "TlsPeer",
    "backoff",
    "connect",
    "listen",
    "native",
    "new_event_loop",
    "process_metrics",
    "set_process_limits",
]

__getattr__, __dir__ = lazy(__name__, {"_event_loop": ("EventLoop", "new_event_loop")})
