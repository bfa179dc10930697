"""dask: comms of Dask's `distributed` over our transport.

`distributed` finds the backends by their entry points: `forebay://host:port`, and
`forebay+unix:///path` between processes of one user on one machine.
"""

from __future__ import annotations

from forebay.dask._backend import Backend, UnixBackend
from forebay.dask._comm import Comm
from forebay.dask._connector import Connector, UnixConnector
from forebay.dask._listener import Listener, UnixListener

__all__ = [
    "Backend",
    "Comm",
    "Connector",
    "Listener",
    "UnixBackend",
    "UnixConnector",
    "UnixListener",
]
