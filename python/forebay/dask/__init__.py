"""dask: comms of Dask's `distributed` over our transport, and an engine on a Dask cluster.

`distributed` finds the backends by their entry points: `forebay://host:port`,
`forebay+tls://host:port` with a `Security` of ours, and `forebay+unix:///path` between processes
of one user on one machine. A server finds the engine by that of `forebay.engines`.

Names are loaded on first use: a server has no need of `distributed`, its agent has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.dask._backend import Backend as Backend
    from forebay.dask._backend import TLSBackend as TLSBackend
    from forebay.dask._backend import UnixBackend as UnixBackend
    from forebay.dask._comm import Comm as Comm
    from forebay.dask._comm import TLSComm as TLSComm
    from forebay.dask._comm import UnixComm as UnixComm
    from forebay.dask._connector import TCPConnector as TCPConnector
    from forebay.dask._connector import TLSConnector as TLSConnector
    from forebay.dask._connector import UnixConnector as UnixConnector
    from forebay.dask._engine import DaskEngine as DaskEngine
    from forebay.dask._listener import Listener as Listener
    from forebay.dask._listener import TLSListener as TLSListener
    from forebay.dask._listener import UnixListener as UnixListener
    from forebay.dask._security import Security as Security

__all__ = [
    "Backend",
    "Comm",
    "DaskEngine",
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

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_backend": ("Backend", "TLSBackend", "UnixBackend"),
        "_comm": ("Comm", "TLSComm", "UnixComm"),
        "_connector": ("TCPConnector", "TLSConnector", "UnixConnector"),
        "_engine": ("DaskEngine",),
        "_listener": ("Listener", "TLSListener", "UnixListener"),
        "_security": ("Security",),
    },
)
