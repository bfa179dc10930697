"""dask: comms of Dask's `distributed` over our transport.

`distributed` finds the backends by their entry points: `forebay://host:port`,
`forebay+tls://host:port` with a `Security` of ours, and `forebay+unix:///path` between processes
of one user on one machine.
"""

from __future__ import annotations

from forebay.dask._backend import Backend, TLSBackend, UnixBackend
from forebay.dask._comm import Comm, TLSComm, UnixComm
from forebay.dask._connector import TCPConnector, TLSConnector, UnixConnector
from forebay.dask._listener import Listener, TLSListener, UnixListener
from forebay.dask._security import Security

__all__ = [
    "Backend",
    "Comm",
    "Listener",
    "Security",
    "TCPConnector",
    "TLSBackend",
    "TLSComm",
    "TLSConnector",
    "TLSListener",
    "UnixBackend",
    "UnixComm",
    "UnixConnector",
    "UnixListener",
]
