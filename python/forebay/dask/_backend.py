"""The backends that Dask finds by their entry points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from distributed.comm import core
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.registry import Backend as DaskBackend
from distributed.utils import ensure_ip, get_ip

from forebay.dask._connector import TCPConnector, TLSConnector, UnixConnector
from forebay.dask._listener import Listener, TLSListener, UnixListener

__all__ = ["Backend", "TLSBackend", "UnixBackend"]

LOOPBACK = "127.0.0.1"


class Backend(DaskBackend):
    """Comms over TCP: addresses `forebay://host:port`."""

    _connector_class: ClassVar[type[core.Connector]] = TCPConnector
    _listener_class: ClassVar[type[Listener]] = Listener

    def get_connector(self) -> core.Connector:
        return self._connector_class()

    def get_listener(
        self,
        loc: str,
        handle_comm: Callable[..., Any],
        deserialize: bool,
        **connection_args: Any,
    ) -> Listener:
        return self._listener_class(loc, handle_comm, deserialize, **connection_args)

    def get_address_host(self, loc: str) -> str:
        return parse_host_port(loc)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        return parse_host_port(loc)

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return unparse_host_port(ensure_ip(host), port)

    def get_local_address_for(self, loc: str) -> str:
        host, _ = parse_host_port(loc)
        return unparse_host_port(get_ip(ensure_ip(host)))


class TLSBackend(Backend):
    """Comms over TLS: addresses `forebay+tls://host:port`."""

    _connector_class = TLSConnector
    _listener_class = TLSListener


class UnixBackend(Backend):
    """Comms over Unix sockets: addresses `forebay+unix:///path`.

    Both ends are on this machine, which is what the loopback address says wherever Dask asks for
    a host.
    """

    _connector_class = UnixConnector
    _listener_class = UnixListener

    def get_address_host(self, loc: str) -> str:
        return LOOPBACK

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        raise NotImplementedError  # which Dask takes for "has none"

    def resolve_address(self, loc: str) -> str:
        return loc

    def get_local_address_for(self, loc: str) -> str:
        return LOOPBACK  # no path: the listener chooses one
