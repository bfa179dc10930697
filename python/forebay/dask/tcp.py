"""A preload: tcp:// and tls:// of this process go over our transport wherever both ends have it.

Importing it replaces the two backends that Dask has registered. Peers with Dask's own are served
as before, so that a cluster can be switched over node by node:

    dask scheduler --preload forebay.dask.tcp
    dask worker tcp://scheduler:8786 --preload forebay.dask.tcp --preload-nanny forebay.dask.tcp

or, for whatever reads the configuration, `distributed.scheduler.preload`, `.worker.preload`,
`.nanny.preload` and `.client.preload`. Dask calls a preload's setup once its server listens, which
is too late; that is why the import does it.
"""

from __future__ import annotations

from distributed.comm.registry import backends

from forebay.dask._mixed import TCPBackend, TLSBackend

__all__ = ["TCPBackend", "TLSBackend"]

backends["tcp"] = TCPBackend()
backends["tls"] = TLSBackend()
