"""Comms at tcp:// and tls://: ours where both ends have them, else Dask's own.

A cluster can so be switched over node by node. Neither end waits for the other's first word:

- Over TCP the listener sends Dask's handshake at once, as Dask's own does, with a mark in it that
  others ignore. A connector of ours hears it before it says anything, and finds the mark or not:
  with it both go on with our protocol on the same connection, else with Dask's.
- In TLS a connector of ours offers our protocol by ALPN to listeners that it knows. Any other it
  connects to as Dask's own does; where there is a mark in that handshake, it notes the address,
  and connects again. A listener that does not keep what its mark promised, as one whose
  certificates rustls refuses, is noted too.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, ClassVar

from distributed.comm import core
from distributed.comm.core import CommClosedError
from distributed.comm.tcp import RequireEncryptionMixin

from forebay.dask._backend import Backend as OurBackend
from forebay.dask._comm import LOGGER_NAME, Comm, TLSComm
from forebay.dask._connector import TCPConnector as OurTCPConnector
from forebay.dask._connector import TLSConnector as OurTLSConnector
from forebay.dask._listener import Listener
from forebay.dask._security import server_tls
from forebay.dask._speech import Speech, heard
from forebay.dask._stock import (
    StockTCP,
    StockTCPConnector,
    StockTLS,
    StockTLSConnector,
    encoded,
    handshake_info,
    plain_comm,
    tls_comm,
)
from forebay.errors import ConfigError
from forebay.transport import Tls

__all__ = [
    "MARK",
    "TCP",
    "TLS",
    "TCPBackend",
    "TCPConnector",
    "TCPListener",
    "TLSBackend",
    "TLSConnector",
    "TLSListener",
]

MARK = "forebay"
"""The entry of a handshake that says that its sender has our protocol too."""

MARKED = {MARK: 1}

NOTED_MAX = 4096
"""Addresses whose kind is known; the oldest one is forgotten for another."""

_log = logging.getLogger(LOGGER_NAME)


class TCP(Comm):
    """A comm of ours at tcp://."""


class TLS(TLSComm):
    """A comm of ours at tls://."""


class _Ours(OurTCPConnector):
    """Goes on with our protocol where a greeting was marked."""

    prefix = "tcp://"
    comm_class = TCP

    async def go_on(self, connected: socket.socket, address: str, deserialize: bool) -> Comm:
        return await self._comm_over(connected, address, deserialize)


class _OursInTLS(OurTLSConnector):
    """Connects to a listener that is known to have our protocol."""

    prefix = "tls://"
    comm_class = TLS

    def tls_for(self, connection_args: dict[str, Any]) -> Tls:
        return self._tls(connection_args)


class TCPConnector(core.Connector, RequireEncryptionMixin):
    """Connects over TCP."""

    prefix: ClassVar[str] = "tcp://"
    encrypted: ClassVar[bool] = False

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> core.Comm:
        """Connect to `address`, which has no scheme, and hear the listener's greeting.

        Raises:
            OSError: no answer; `distributed` tries again.
            RuntimeError: the configuration asks for encryption.

        Cancellation: the connection is closed. `distributed` bounds the time with it.
        """
        stock: StockTCP = await StockTCPConnector().connect(address, deserialize, **connection_args)
        if not await _is_marked(stock):
            return stock
        assert stock.stream is not None
        connected = socket.socket(fileno=os.dup(stock.stream.socket.fileno()))
        stock.abort()  # it has read the greeting, of which nothing follows yet, and no more
        return await _Ours().go_on(connected, address, deserialize)


class TLSConnector(core.Connector, RequireEncryptionMixin):
    """Connects over TLS; `kinds` is what is known of listeners."""

    prefix: ClassVar[str] = "tls://"
    encrypted: ClassVar[bool] = True

    def __init__(self, kinds: Kinds | None = None) -> None:
        self._kinds = Kinds() if kinds is None else kinds
        self._ours = _OursInTLS()

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> core.Comm:
        """Connect to `address`, which has no scheme.

        Raises:
            OSError: no answer, or that of another kind of listener than before; `distributed` tries
                again.
            FatalCommClosedError: certificates are refused; it does not.

        Cancellation: the connection is closed. `distributed` bounds the time with it.
        """
        can = _can(self._ours.tls_for, connection_args)
        kind = self._kinds.get(address)
        if can and kind is True:
            return await self._connect_as_ours(address, deserialize, connection_args)
        stock: StockTLS = await StockTLSConnector().connect(address, deserialize, **connection_args)
        if not await _is_marked(stock) or not can or kind is False:
            return stock
        stock.abort()
        return await self._connect_as_ours(address, deserialize, connection_args)

    async def _connect_as_ours(
        self, address: str, deserialize: bool, connection_args: dict[str, Any]
    ) -> core.Comm:
        was_known = self._kinds.get(address) is True
        try:
            comm = await self._ours.connect(address, deserialize, **connection_args)
        except OSError as error:
            # One that was ours may be another process's by now, or gone; its greeting tells.
            self._kinds.note(address, None if was_known else False)
            if not was_known:
                _log.info("tls://%s is left to Dask's own comms: %s", address, error)
            raise CommClosedError(str(error)) from error
        self._kinds.note(address, True)
        return comm


class Kinds:
    """Which listeners have our protocol: True, False, or None where nobody knows."""

    def __init__(self) -> None:
        self._noted: dict[str, bool] = {}

    def get(self, address: str) -> bool | None:
        return self._noted.get(address)

    def note(self, address: str, ours: bool | None) -> None:
        self._noted.pop(address, None)
        if ours is None:
            return
        self._noted[address] = ours
        if len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]


class TCPListener(Listener):
    """Listens over TCP; each comm is of the kind that its peer has."""

    scheme = "tcp"
    comm_class = TCP

    async def _meet(self, connected: socket.socket, local: str, peer: str) -> core.Comm:
        greeting = encoded({**handshake_info(local, peer), **self._overrides()})
        if connected.send(greeting) != len(greeting):
            raise CommClosedError("it takes no greeting")
        speech = await heard(connected)
        if speech is Speech.OURS:
            return await self._comm_over(connected, local, peer)
        if speech is not Speech.DASK:
            raise CommClosedError(f"it speaks {speech.value}")
        comm = plain_comm(connected, local, peer, self._deserialize)
        comm.has_greeted = True
        return comm

    def _overrides(self) -> dict[str, Any]:
        return {**(self._handshake_overrides or {}), **MARKED}


class TLSListener(Listener):
    """Listens over TLS; each comm is of the kind that its peer has."""

    scheme = "tls"
    encrypted = True
    comm_class = TLS

    def _tls_of(
        self, connection_args: dict[str, Any], handle_comm: Callable[..., Any]
    ) -> Tls | None:
        if not isinstance(connection_args.get("ssl_context"), ssl.SSLContext):
            raise TypeError("tls:// needs certificates: give a security, or distributed.comm.tls")
        return _can(server_tls, connection_args, handle_comm)

    async def _meet(self, connected: socket.socket, local: str, peer: str) -> core.Comm:
        speech = await heard(connected)
        if speech is Speech.OURS_IN_TLS and self._tls is not None:
            return await self._comm_over(connected, local, peer)
        if speech is not Speech.TLS or self._ssl_context is None:
            raise CommClosedError(f"it speaks {speech.value}")
        return await tls_comm(connected, self._ssl_context, local, peer, self._deserialize)

    def _overrides(self) -> dict[str, Any]:
        return {**(self._handshake_overrides or {}), **(MARKED if self._tls else {})}


class TCPBackend(OurBackend):
    """tcp://, for peers of both kinds."""

    _connector_class = TCPConnector
    _listener_class = TCPListener


class TLSBackend(OurBackend):
    """tls://, for peers of both kinds."""

    _listener_class = TLSListener

    def __init__(self) -> None:
        self._kinds = Kinds()

    def get_connector(self) -> TLSConnector:
        return TLSConnector(self._kinds)


async def _is_marked(stock: StockTCP | StockTLS) -> bool:
    """Hear a listener's greeting, which stays for whoever reads first; whether it has our mark."""
    try:
        greeting = await stock.read()
    except BaseException:
        stock.abort()
        raise
    stock.greeting = greeting
    return isinstance(greeting, dict) and MARK in greeting


def _can(make: Callable[..., Tls], *arguments: Any) -> Tls | None:
    """The settings for TLS in Rust, where there can be any; why not, in the log."""
    try:
        return make(*arguments)
    except (TypeError, ConfigError, OSError) as error:
        _log.debug("tls:// is left to Dask's own comms: %s", error)
        return None
