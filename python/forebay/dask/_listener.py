"""The listening side of the backends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, CommClosedError
from distributed.comm.core import Comm as DaskComm
from distributed.comm.tcp import RequireEncryptionMixin
from distributed.comm.utils import ensure_concrete_host

from forebay import _core, _forks
from forebay.dask._comm import LOGGER_NAME, Comm, TLSComm, UnixComm, handshake_timeout
from forebay.dask._connector import TLS_FAILED, connection_over, found_out
from forebay.dask._security import server_tls
from forebay.dask._socket import bind, is_loopback, name_of, name_of_unix, tune
from forebay.dask._speech import Speech, heard
from forebay.dask._stock import plain_comm, refuse, tls_comm
from forebay.errors import ConfigError, Error
from forebay.transport import Tls
from forebay.transport._internal import Acceptor, ListeningSocket, tcp_listening

__all__ = ["Listener", "TLSListener", "UnixListener"]

HOSTS_TOLD_MAX = 256
"""Hosts whose peers were warned about, in one listener; those of others are told at INFO."""

_log = logging.getLogger(LOGGER_NAME)


class Listener(BaseListener, RequireEncryptionMixin):
    """Listens over TCP, and hands each comm to `handle_comm` once both ends know each other.

    Args:
        address: `host:port`, a host alone, or nothing for all interfaces; no scheme.
        handle_comm: a function or coroutine function; the comm is its own.
        deserialize: whether the comms deserialize payloads.
        allow_offload: whether they may do so in a thread where there is much of it.
        default_host: the host of `contact_address` where it listens on all interfaces.
        default_port: where `address` names none; 0 is any that is free.
        handshake_overrides: what this end says of itself instead of its own facts.
        connection_args: `require_encryption`, and certificates for TLS; others are ignored.

    Raises:
        RuntimeError: the configuration asks for encryption, and the scheme has none.

    Affinity: the loop in which it is started, and its thread.
    """

    scheme: ClassVar[str] = "forebay"
    encrypted: ClassVar[bool] = False
    comm_class: ClassVar[type[Comm]] = Comm

    def __init__(
        self,
        address: str,
        handle_comm: Callable[[DaskComm], Any],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        handshake_overrides: dict[str, Any] | None = None,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        self._prefix = f"{self.scheme}://"
        self._bound: Any = None
        self._check_encryption(address, connection_args)
        self._tls = self._tls_of(connection_args, handle_comm)
        self._ssl_context: ssl.SSLContext | None = connection_args.get("ssl_context")
        self._address = address
        self._default_host = default_host
        self._default_port = default_port
        self._handle_comm = handle_comm
        self._deserialize = deserialize
        self._allow_offload = allow_offload
        self._handshake_overrides = handshake_overrides
        self._acceptor: Acceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._meeting: set[asyncio.Task[Any]] = set()
        self._hosts_told: set[str] = set()

    async def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: it cannot, for example because the port is taken.
        """
        name = self._prefix + self._address
        self._acceptor = Acceptor(name, self._open(), self._take, log=_log)

    def stop(self) -> None:
        """Stop listening; established comms stay. Idempotent."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.stop()
        for task in self._meeting:
            task.cancel()

    def get_host_port(self) -> tuple[str, int]:
        """Host and port to which it is bound.

        Raises:
            ValueError: it is not started.
        """
        host, port = self._where()[:2]
        return host, port

    @property
    def prefix(self) -> str:
        """What Dask's log of a worker puts before its host, and port if it has one."""
        return self._prefix

    @property
    def listen_address(self) -> str:
        return self._prefix + name_of(self._where())

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        host = ensure_concrete_host(host, default_host=self._default_host)
        return self._prefix + unparse_host_port(host, port)

    def _tls_of(
        self, connection_args: dict[str, Any], handle_comm: Callable[..., Any]
    ) -> Tls | None:
        """Its TLS settings, where the scheme is encrypted."""
        return None

    def _where(self) -> Any:
        if self._bound is None:
            raise ValueError(f"the listener on {self._prefix}{self._address} is not started")
        return self._bound

    def _open(self) -> list[ListeningSocket]:
        sockets = bind(*parse_host_port(self._address, self._default_port))
        # The names of both families have the same port; more machines reach the older one.
        sockets.sort(key=lambda one: one.family != socket.AF_INET)
        try:
            # Dask loads what it is sent. Certificates say who may connect where there are some.
            listening = tcp_listening(
                sockets, tune, own=lambda one: not self.encrypted and is_loopback(one), log=_log
            )
        except ConfigError as error:
            raise ConfigError(
                f"{self._prefix}{self._address}: the kernel does not say whose a connection over"
                " the loopback interface is, and Dask runs what it is sent: use forebay+tls:// or"
                " forebay+unix://"
            ) from error
        self._bound = sockets[0].getsockname()
        return listening

    def _names(self, connected: socket.socket) -> tuple[str, str]:
        """What to call the two ends of a connection."""
        return name_of(connected.getsockname()), name_of(connected.getpeername())

    def _take(self, descriptor: int) -> None:
        task = asyncio.get_running_loop().create_task(self._run(descriptor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, descriptor: int) -> None:
        try:
            await self._serve(descriptor)
        except Exception:
            _log.exception("%s%s: a connection ended in an error", self._prefix, self._address)

    async def _serve(self, descriptor: int) -> None:
        acceptor = self._acceptor
        try:
            comm = await self._met(descriptor)
        finally:
            if acceptor is not None:
                acceptor.end_handshake()
        if comm is None:
            return
        try:
            await self.on_connection(comm, self._overrides())
        except CommClosedError:
            _log.info("Connection from %s closed before handshake completed", comm.peer_address)
            return
        handled = self._handle_comm(comm)
        if inspect.isawaitable(handled):
            await handled

    async def _met(self, descriptor: int) -> DaskComm | None:
        """The comm of an accepted connection; None if that came to nothing."""
        try:
            connected = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            return None
        try:
            local, peer = (self._prefix + name for name in self._names(connected))
        except OSError:  # it is gone already
            connected.close()
            return None
        task = asyncio.current_task()
        assert task is not None
        self._meeting.add(task)
        try:
            if self._acceptor is None:  # stopped since this was accepted
                raise CommClosedError("the listener has stopped")
            async with asyncio.timeout(handshake_timeout()):
                comm = await self._meet(connected, local, peer)
        except (Error, OSError) as error:
            # Whoever connects with a certificate that is not accepted would like to be found.
            level = logging.WARNING if TLS_FAILED in str(error) else logging.INFO
            _log.log(level, "Handshake with %s failed: %s", peer, error or "it is silent")
            return None
        finally:
            self._meeting.discard(task)
            connected.close()  # unless somebody has taken it over
        comm.allow_offload = self._allow_offload
        return comm

    async def _meet(self, connected: socket.socket, local: str, peer: str) -> DaskComm:
        """Find out who is there, and make a comm of it; takes the socket over.

        Raises:
            OSError, forebay.Error: nobody with whom there can be one.
        """
        speech = await heard(connected)
        if speech in (Speech.DASK, Speech.TLS):
            await self._refuse(speech, connected, local, peer)
        return await self._comm_over(connected, local, peer)

    def _overrides(self) -> dict[str, Any]:
        """What this end says of itself in Dask's handshake instead of its facts, or besides."""
        return self._handshake_overrides or {}

    async def _comm_over(self, connected: socket.socket, local: str, peer: str) -> Comm:
        """A comm of ours, after its handshake."""
        connection = connection_over(connected.detach(), peer, self._tls)
        try:
            await connection.handshake()
            extra = found_out(connection)
            return self.comm_class(connection, local, peer, self._deserialize, extra)
        except BaseException:
            connection.close()
            raise

    async def _refuse(
        self, speech: Speech, connected: socket.socket, local: str, peer: str
    ) -> None:
        """Tell a peer that has Dask's own comms why it gets none here, and the operator."""
        address = self.contact_address
        self._warn(peer, f"{peer} speaks {speech.value}, and is refused: {_advice(address)}")
        if speech is Speech.DASK:
            await refuse(plain_comm(connected, local, peer, deserialize=False), _advice(address))
        elif self._ssl_context is not None and self.encrypted:
            context = self._ssl_context
            comm = await tls_comm(connected, context, local, peer, deserialize=False)
            await refuse(comm, _advice(address))
        else:
            return  # what it gets is an error of TLS
        raise CommClosedError(f"it speaks {speech.value}")

    def _warn(self, peer: str, text: str) -> None:
        """Log at WARNING, once for each host: a peer that tries again says nothing new."""
        host = peer.rpartition(":")[0]
        is_new = host not in self._hosts_told and len(self._hosts_told) < HOSTS_TOLD_MAX
        if is_new:
            self._hosts_told.add(host)
        _log.log(logging.WARNING if is_new else logging.INFO, "%s", text)


class TLSListener(Listener):
    """Listens over TLS; peers must show a certificate of the same CA."""

    scheme = "forebay+tls"
    encrypted = True
    comm_class = TLSComm

    def _tls_of(
        self, connection_args: dict[str, Any], handle_comm: Callable[..., Any]
    ) -> Tls | None:
        return server_tls(connection_args, handle_comm)


class UnixListener(Listener):
    """Listens on a Unix socket whose file this user alone may open.

    Args:
        address: an absolute path; anything else, as `127.0.0.1:0`, has a path chosen in a new
            private directory, which goes with the listener.
    """

    scheme = "forebay+unix"
    comm_class = UnixComm

    def stop(self) -> None:
        started = self._acceptor is not None
        super().stop()
        if started and not is_path(self._address):
            shutil.rmtree(Path(self._bound).parent, ignore_errors=True)

    def get_host_port(self) -> tuple[str, int]:
        raise ValueError(f"{self.listen_address} has no port")

    @property
    def prefix(self) -> str:
        return self._prefix if self._bound is None else f"{self.listen_address} on "

    @property
    def listen_address(self) -> str:
        return self._prefix + str(self._where())

    @property
    def contact_address(self) -> str:
        return self.listen_address

    def _open(self) -> list[ListeningSocket]:
        path = self._address
        if not is_path(path):
            runtime = os.environ.get("XDG_RUNTIME_DIR")
            directory = runtime if runtime and os.access(runtime, os.W_OK) else None
            path = str(Path(tempfile.mkdtemp(prefix="forebay-dask-", dir=directory)) / "comm")
        _forks.stop_listening()
        listener = _core.Listener(path)
        self._bound = path
        return [listener]

    async def _meet(self, connected: socket.socket, local: str, peer: str) -> DaskComm:
        return await self._comm_over(connected, local, peer)  # Dask's own have no Unix sockets

    def _names(self, connected: socket.socket) -> tuple[str, str]:
        return str(self._where()), name_of_unix(connected.getpeername())


def _advice(address: str) -> str:
    """What the operator of a peer with Dask's own comms can do."""
    return (
        f"{address} is served by Forebay, and Dask's own comms do not understand its protocol;"
        f" connect to {address} instead, with forebay[dask] installed. An address without a scheme"
        " is one of tcp://"
    )


def is_path(address: str) -> bool:
    """Whether a location of `forebay+unix` names a socket."""
    return address.startswith("/")
