"""Accepting connections on an event loop, for every listener in Python."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from forebay import _forks
from forebay._core import Listener as UnixListener
from forebay._core import Owners, process_has_room, process_metrics
from forebay._steps import awaited
from forebay.errors import BrokenError, ConfigError
from forebay.transport._address import PATH_SCHEMES, Address
from forebay.transport._socket import bind_all, name_of, resolve, tune

__all__ = ["Acceptor", "ListeningSocket", "TcpListeningSocket", "open_listening", "tcp_listening"]

ACCEPTS_A_TURN = 64
HANDSHAKES_MAX = 256
"""Connections in their handshake at the same time; more wait in the kernel's queue."""
PAUSE_S = 0.1
"""How long accepting pauses when there is no room in the process, or no descriptor left."""
FULL_EVERY_S = 60.0
"""How often the log says that the process may have no further connection, while it may not."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
NO_MEMORY = (errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


class ListeningSocket(Protocol):
    """A listening socket that never blocks."""

    def fileno(self) -> int: ...

    def accept(self) -> int | None:
        """Accept a connection: its descriptor, or None if none waits or its peer is refused."""

    def close(self) -> None: ...


class TcpListeningSocket:
    """A listening TCP socket; what it accepts is nonblocking, and made ready by `prepare`.

    With `own` only connections of this user are accepted, on the loopback interface.

    Raises:
        ConfigError: the kernel does not report the user of a connection.
    """

    __slots__ = ("__weakref__", "_listening", "_log", "_logged", "_owners", "_prepare")

    def __init__(
        self,
        listening: socket.socket,
        prepare: Callable[[socket.socket], None] = tune,
        *,
        own: bool = False,
        log: logging.Logger = _log,
    ) -> None:
        self._listening = listening
        self._prepare = prepare
        self._log = log
        self._logged = False
        self._owners: Owners | None = Owners(listening.fileno()) if own else None
        _forks.watch(self)

    def fileno(self) -> int:
        return self._listening.fileno()

    def accept(self) -> int | None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        complaint = self._owners and self._owners.complaint(accepted.fileno())
        if complaint:
            accepted.close()
            # Once as a warning: any user could fill the log.
            level = logging.DEBUG if self._logged else logging.WARNING
            self._logged = True
            name = name_of("tcp", self._listening.getsockname())
            self._log.log(level, "%s: %s", name, complaint)
            return None
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # a peer that is gone is noticed in the handshake
            self._prepare(accepted)
        return accepted.detach()

    def close(self) -> None:
        self._listening.close()
        self._owners = None  # it has a descriptor

    def _forget(self) -> object:
        """In a forked child: close the socket, and keep its number, which copied loops know."""
        number = self._listening.fileno()
        if number >= 0:
            os.close(number)  # before, as there may be no other free one
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if null != number:
                os.dup2(null, number, inheritable=False)
                os.close(null)
        return None


async def open_listening(address: Address, *, own: bool) -> tuple[str, list[ListeningSocket]]:
    """Listen at an address; the URL that peers dial, and the sockets, the caller's to close.

    Args:
        address: of a path, or a host.
        own: at a host, whether only this user may connect.

    Raises:
        ConfigError: the path of a Unix socket is too long or in use; or the kernel does not
            report the user of a connection.
        BrokenError: the host is not known.
        OSError: the port is taken, or the host not of this machine.
    """
    if address.scheme in PATH_SCHEMES:
        _forks.stop_listening()
        return str(address), [UnixListener(address.path)]
    found = await awaited(resolve(address.host, address.port, passive=True), None)
    sockets = bind_all(found, address.port)
    url = name_of(address.scheme, sockets[0].getsockname())
    return url, tcp_listening(sockets, own=lambda _: own)


def tcp_listening(
    sockets: list[socket.socket],
    prepare: Callable[[socket.socket], None] = tune,
    *,
    own: Callable[[socket.socket], bool],
    log: logging.Logger = _log,
) -> list[ListeningSocket]:
    """Make a `TcpListeningSocket` of each socket; where one is refused, all are closed.

    Args:
        sockets: taken over.
        prepare: as of `TcpListeningSocket`.
        own: whether only this user may connect to one.
        log: gets the warning about another user's connection.

    Raises:
        ConfigError: as of `TcpListeningSocket`.
    """
    try:
        return [
            TcpListeningSocket(listening, prepare, own=own(listening), log=log)
            for listening in sockets
        ]
    except ConfigError:
        for listening in sockets:
            listening.close()
        raise


class Acceptor:
    """Accepts the connections of some listening sockets.

    It pauses while `HANDSHAKES_MAX` of them are in their handshake, whose end its owner reports by
    `end_handshake`, while the owner holds it, for `PAUSE_S` while the process may have no further
    connection, and for as long where no descriptor is left: then it rejects the first peer in the
    queue rather than have it wait.

    Args:
        name: what the log calls it.
        sockets: closed by `stop`.
        take: takes over the descriptor of a connection, even if it raises OSError for want of
            another one; it does not wait.
        log: gets the warnings about limits.

    Affinity: the running loop, and its thread.
    """

    def __init__(
        self,
        name: str,
        sockets: Sequence[ListeningSocket],
        take: Callable[[int], object],
        *,
        log: logging.Logger = _log,
    ) -> None:
        self._name = name
        self._log = log
        self._full_logged_at = -FULL_EVERY_S
        self._sockets = sockets
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._spare = -1
        self._handshakes = 0
        self._accepting = self._held = self._exhausted = self._stopped = False
        self._resume()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Stop listening; accepted connections stay open. Idempotent."""
        self._stopped = True
        self._update()
        for listening in self._sockets:
            listening.close()
        self._drop_spare()

    def end_handshake(self) -> None:
        """Count one handshake less."""
        self._handshakes -= 1
        self._update()

    def hold(self, held: bool) -> None:
        """Have peers wait in the kernel's queue, or no longer."""
        self._held = held
        self._update()

    def _update(self) -> None:
        """Watch the sockets while connections may be accepted."""
        closed = self._stopped or self._held or self._exhausted
        wanted = not closed and self._handshakes < HANDSHAKES_MAX
        if wanted == self._accepting:
            return
        self._accepting = wanted
        for listening in self._sockets:
            if wanted:
                self._loop.add_reader(listening.fileno(), self._accept, listening)
            else:
                self._loop.remove_reader(listening.fileno())

    def _accept(self, listening: ListeningSocket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if not self._accepting:
                return
            if not process_has_room():
                self._log_full()
                self._pause()  # no event says when another listener's connection ends
                return
            try:
                if not self._accept_one(listening):
                    return
            except (OSError, BrokenError) as error:
                system = error if isinstance(error, OSError) else error.__cause__
                if not isinstance(system, OSError):
                    raise
                if system.errno in NO_DESCRIPTOR:
                    self._reject_one(listening, system)
                elif system.errno in NO_MEMORY:
                    self._log_pause(system)
                    self._pause()
                else:
                    raise
                return
            self._update()

    def _accept_one(self, listening: ListeningSocket) -> bool:
        """Take one connection; False if none waits."""
        descriptor = listening.accept()
        if descriptor is None:
            return False
        self._handshakes += 1
        try:
            self._take(descriptor)
        except BaseException:
            self._handshakes -= 1
            raise
        return True

    def _reject_one(self, listening: ListeningSocket, error: OSError) -> None:
        """Without a descriptor: reject the first peer in the queue rather than have it wait."""
        self._log_pause(error)
        self._drop_spare()
        with contextlib.suppress(OSError, BrokenError):
            descriptor = listening.accept()
            if descriptor is not None:
                os.close(descriptor)
        self._keep_spare()
        self._pause()

    def _log_pause(self, error: OSError) -> None:
        self._log.error(
            "%s accepts no connection for %g s: %s", self._name, PAUSE_S, error.strerror
        )

    def _log_full(self) -> None:
        """Say that the process may have no further connection, once in `FULL_EVERY_S`."""
        now = time.monotonic()
        if now - self._full_logged_at < FULL_EVERY_S:
            return
        self._full_logged_at = now
        counts = process_metrics()
        self._log.warning(
            "%s accepts no connection: %d are open, and this process may have %d; peers wait until"
            " one ends. Raise its limit of open files (ulimit -n), of which 128 are not for"
            " connections, or forebay.transport.set_process_limits(max_connections=...)",
            self._name,
            counts["connections"],
            counts["max_connections"],
        )

    def _pause(self) -> None:
        """Accept no connection for a moment."""
        self._exhausted = True
        self._update()
        self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._exhausted = False
        if not self._stopped:
            self._keep_spare()
        self._update()

    def _keep_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):  # another thread took it; tried again later
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
