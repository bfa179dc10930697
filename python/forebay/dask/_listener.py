"""The listening side of the backends."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, CommClosedError
from distributed.comm.tcp import RequireEncryptionMixin
from distributed.comm.utils import ensure_concrete_host

from forebay import _core, _forks
from forebay._core import MessageConnection
from forebay.dask._comm import Comm, TLSComm, UnixComm, handshake_timeout
from forebay.dask._connector import connection_over, found_out
from forebay.dask._security import server_tls
from forebay.dask._socket import bind, is_loopback, name_of, name_of_unix, tune
from forebay.errors import ConfigError, Error
from forebay.transport import Tls
from forebay.transport._internal import Acceptor, ListeningSocket, tcp_listening

__all__ = ["Listener", "TLSListener", "UnixListener"]

_log = logging.getLogger(__name__)


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

    prefix: ClassVar[str] = "forebay://"
    encrypted: ClassVar[bool] = False
    comm_class: ClassVar[type[Comm]] = Comm

    def __init__(
        self,
        address: str,
        handle_comm: Callable[[Comm], Any],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        handshake_overrides: dict[str, Any] | None = None,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        self._check_encryption(address, connection_args)
        self._tls = self._tls_of(connection_args)
        self._address = address
        self._default_host = default_host
        self._default_port = default_port
        self._handle_comm = handle_comm
        self._deserialize = deserialize
        self._allow_offload = allow_offload
        self._handshake_overrides = handshake_overrides
        self._handshakes: set[MessageConnection] = set()
        self._acceptor: Acceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._bound: Any = None

    async def start(self) -> None:
        """Start to listen.

        Raises:
            OSError: it cannot, for example because the port is taken.
        """
        self._acceptor = Acceptor(self.prefix + self._address, self._open(), self._take)

    def stop(self) -> None:
        """Stop listening; established comms stay. Idempotent."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            acceptor.stop()
        for connection in self._handshakes:
            connection.close()

    def get_host_port(self) -> tuple[str, int]:
        """Host and port to which it is bound.

        Raises:
            ValueError: it is not started.
        """
        host, port = self._where()[:2]
        return host, port

    @property
    def listen_address(self) -> str:
        return self.prefix + name_of(self._where())

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        host = ensure_concrete_host(host, default_host=self._default_host)
        return self.prefix + unparse_host_port(host, port)

    def _tls_of(self, connection_args: dict[str, Any]) -> Tls | None:
        """Its TLS settings, where the scheme is encrypted."""
        return None

    def _where(self) -> Any:
        if self._bound is None:
            raise ValueError(f"the listener on {self.prefix}{self._address} is not started")
        return self._bound

    def _open(self) -> list[ListeningSocket]:
        sockets = bind(*parse_host_port(self._address, self._default_port))
        # The names of both families have the same port; more machines reach the older one.
        sockets.sort(key=lambda one: one.family != socket.AF_INET)
        try:
            # Dask loads what it is sent. Certificates say who may connect where there are some.
            listening = tcp_listening(
                sockets, tune, own=lambda one: self._tls is None and is_loopback(one)
            )
        except ConfigError as error:
            raise ConfigError(
                f"{self.prefix}{self._address}: the kernel does not say whose a connection over the"
                " loopback interface is, and Dask runs what it is sent: use forebay+tls:// or"
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
            _log.exception("%s%s: a connection ended in an error", self.prefix, self._address)

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
            await self.on_connection(comm, self._handshake_overrides)
        except CommClosedError:
            _log.info("Connection from %s closed before handshake completed", comm.peer_address)
            return
        handled = self._handle_comm(comm)
        if inspect.isawaitable(handled):
            await handled

    async def _met(self, descriptor: int) -> Comm | None:
        """The comm of an accepted connection; None if that came to nothing."""
        try:
            with socket.socket(fileno=os.dup(descriptor)) as connected:
                local, peer = (self.prefix + name for name in self._names(connected))
        except OSError:  # it is gone already
            os.close(descriptor)
            return None
        connection = connection_over(descriptor, peer, self._tls)
        self._handshakes.add(connection)
        try:
            if self._acceptor is None:  # stopped since this was accepted
                raise CommClosedError("the listener has stopped")
            async with asyncio.timeout(handshake_timeout()):
                await connection.handshake()
            extra = found_out(connection)
            comm = self.comm_class(connection, local, peer, self._deserialize, extra)
        except (Error, OSError) as error:
            connection.close()
            _log.info("Handshake with %s failed: %s", peer, error or "it is silent")
            return None
        except BaseException:
            connection.close()
            raise
        finally:
            self._handshakes.discard(connection)
        comm.allow_offload = self._allow_offload
        return comm


class TLSListener(Listener):
    """Listens over TLS; peers must show a certificate of the same CA."""

    prefix = "forebay+tls://"
    encrypted = True
    comm_class = TLSComm

    def _tls_of(self, connection_args: dict[str, Any]) -> Tls:
        return server_tls(connection_args)


class UnixListener(Listener):
    """Listens on a Unix socket whose file this user alone may open.

    Args:
        address: an absolute path; anything else, as `127.0.0.1:0`, has a path chosen in a new
            private directory, which goes with the listener.
    """

    prefix = "forebay+unix://"
    comm_class = UnixComm

    def stop(self) -> None:
        started = self._acceptor is not None
        super().stop()
        if started and not is_path(self._address):
            shutil.rmtree(Path(self._bound).parent, ignore_errors=True)

    def get_host_port(self) -> tuple[str, int]:
        raise ValueError(f"{self.listen_address} has no port")

    @property
    def listen_address(self) -> str:
        return self.prefix + str(self._where())

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

    def _names(self, connected: socket.socket) -> tuple[str, str]:
        return str(self._where()), name_of_unix(connected.getpeername())


def is_path(address: str) -> bool:
    """Whether a location of `forebay+unix` names a socket."""
    return address.startswith("/")
