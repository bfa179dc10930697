"""The connecting side of the backends."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, ClassVar

from distributed.comm import core
from distributed.comm.addressing import parse_host_port
from distributed.comm.core import CommClosedError, FatalCommClosedError
from distributed.comm.tcp import RequireEncryptionMixin
from distributed.protocol.utils import host_array
from distributed.system import MEMORY_LIMIT

from forebay._core import MessageConnection
from forebay.dask._comm import Comm, TLSComm, UnixComm
from forebay.dask._security import client_tls
from forebay.dask._socket import dial, dial_unix, name_of, name_of_unix
from forebay.errors import Error, ProtocolError
from forebay.transport import ConnectionLimits, Tls
from forebay.transport._internal import peer_of

__all__ = [
    "TLS_FAILED",
    "TCPConnector",
    "TLSConnector",
    "UnixConnector",
    "connection_over",
    "found_out",
]

TLS_FAILED = "TLS failed"
"""How errors of certificates begin, in crates/transport/src/error.rs; trying again helps none."""


def connection_over(
    descriptor: int, peer: str, tls: Tls | None = None, host: str = ""
) -> MessageConnection:
    """A connection over a connected socket, which is its own, bound to the running loop.

    Memory for what the peer announces is obtained at once, up to this process's own limit: a
    member of a Dask cluster may run code in it anyway, and TLS is what keeps others out.
    Long frames are received into memory of numpy, where there is numpy, as Dask's own comms do.
    """
    os.set_blocking(descriptor, False)
    limits = ConnectionLimits(max_message_bytes=MEMORY_LIMIT)
    connection = MessageConnection(
        descriptor,
        peer=peer,
        trusted=True,
        limits=limits.of_connection(),
        allocate=host_array,
        tls=None if tls is None else tls.core,
        host=host,
    )
    connection.bind(asyncio.get_running_loop())
    return connection


def found_out(connection: MessageConnection) -> dict[str, Any]:
    """What a handshake of TLS found out, as Dask has it in `extra_info`."""
    peer = peer_of(connection)
    return {} if peer is None else {"peercert": peer.certificate, "cipher": peer.cipher}


class TCPConnector(core.Connector, RequireEncryptionMixin):
    """Connects over TCP."""

    prefix: ClassVar[str] = "forebay://"
    encrypted: ClassVar[bool] = False
    comm_class: ClassVar[type[Comm]] = Comm

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> core.Comm:
        """Connect to `address`, which has no scheme, and wait for the handshake.

        Raises:
            OSError: no answer; `distributed` tries again.
            FatalCommClosedError: something else answers, or its certificate is refused; it does
                not.
            RuntimeError: the configuration asks for encryption.

        Cancellation: the socket is closed. `distributed` bounds the time with it.
        """
        self._check_encryption(address, connection_args)
        tls = self._tls(connection_args)
        connected = await self._dial(address)
        return await self._comm_over(connected, address, deserialize, tls)

    async def _comm_over(
        self, connected: socket.socket, address: str, deserialize: bool, tls: Tls | None = None
    ) -> Comm:
        """A comm over a connected socket, which is its own, after its handshake."""
        local_address = self.prefix + self._name(connected.getsockname())
        peer_address = self.prefix + address
        host = parse_host_port(address)[0] if tls else ""
        connection = connection_over(connected.detach(), peer_address, tls, host)
        try:
            await connection.handshake()
        except Error as error:
            connection.close()
            final = isinstance(error, ProtocolError) or TLS_FAILED in str(error)
            raise (FatalCommClosedError if final else CommClosedError)(str(error)) from error
        except BaseException:
            connection.close()
            raise
        extra = found_out(connection)
        return self.comm_class(connection, local_address, peer_address, deserialize, extra)

    def _tls(self, connection_args: dict[str, Any]) -> Tls | None:
        """What it shows and believes, where the scheme is encrypted."""
        return None

    async def _dial(self, address: str) -> socket.socket:
        return await dial(*parse_host_port(address))

    def _name(self, address: Any) -> str:
        return name_of(address)


class TLSConnector(TCPConnector):
    """Connects over TLS; both sides show certificates of the same CA."""

    prefix = "forebay+tls://"
    encrypted = True
    comm_class = TLSComm

    def _tls(self, connection_args: dict[str, Any]) -> Tls:
        return client_tls(connection_args)


class UnixConnector(TCPConnector):
    """Connects over Unix sockets."""

    prefix = "forebay+unix://"
    comm_class = UnixComm

    async def _dial(self, address: str) -> socket.socket:
        return dial_unix(address)

    def _name(self, address: Any) -> str:
        return name_of_unix(address)
