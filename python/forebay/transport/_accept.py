"""Accepting connections on an event loop, for every listener of Python's."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from forebay import _forks
from forebay._core import Listener as UnixListener
from forebay._core import Owners, process_has_room
from forebay.errors import BrokenError, ConfigError
from forebay.transport._address import PATH_SCHEMES, Address
from forebay.transport._socket import bind_all, name_of, resolve, tune

__all__ = ["Acceptor", "Door", "TcpDoor", "open_doors", "tcp_doors"]

ACCEPTS_A_TURN = 64
UNMET_MAX = 256
"""Connections in their handshake at the same time; more wait in the kernel's queue."""
PAUSE_S = 0.1
"""How long accepting pauses when there is no room in the process, or no descriptor left."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
NO_MEMORY = (errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


class Door(Protocol):
    """A listening socket that never blocks."""

    def fileno(self) -> int: ...

    def accept(self) -> int | None:
        """Take a waiting connection's descriptor; None if there is none, or not for its peer."""

    def close(self) -> None: ...


class TcpDoor:
    """A listening TCP socket; what it accepts is nonblocking, and made ready by `prepare`.

    With `own` only connections of this user are accepted, on the loopback interface.

    Raises:
        ConfigError: the kernel does not tell whose they are.
    """

    __slots__ = ("__weakref__", "_listening", "_owners", "_prepare", "_told")

    def __init__(
        self,
        listening: socket.socket,
        prepare: Callable[[socket.socket], None] = tune,
        *,
        own: bool = False,
    ) -> None:
        self._listening = listening
        self._prepare = prepare
        self._told = False
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
            level = logging.DEBUG if self._told else logging.WARNING  # anybody could fill the log
            self._told = True
            _log.log(level, "%s: %s", name_of("tcp", self._listening.getsockname()), complaint)
            return None
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # a peer that has gone again is noticed when it is met
            self._prepare(accepted)
        return accepted.detach()

    def close(self) -> None:
        self._listening.close()
        self._owners = None  # it has a descriptor

    def _forget(self) -> object:
        """Listen no more; the number stays taken, as event loops that were copied know it."""
        number = self._listening.fileno()
        if number >= 0:
            os.close(number)  # before, as there may be no other free one
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            if null != number:
                os.dup2(null, number, inheritable=False)
                os.close(null)
        return None


async def open_doors(address: Address, *, own: bool) -> tuple[str, list[Door]]:
    """Listen at an address; the URL that peers dial, and its doors, the caller's to close.

    Args:
        address: of a path, or a host.
        own: at a host, whether only this user may connect.

    Raises:
        ConfigError: the path of a Unix socket is too long or in use; or the kernel does not tell
            whose a connection is.
        BrokenError: the host is not known.
        OSError: the port is taken, or the host not of this machine.
    """
    if address.scheme in PATH_SCHEMES:
        _forks.stop_listening()
        return str(address), [UnixListener(address.path)]
    loop = asyncio.get_running_loop()
    found = await resolve(loop, address.host, address.port, passive=True)
    sockets = bind_all(found, address.port)
    url = name_of(address.scheme, sockets[0].getsockname())
    return url, tcp_doors(sockets, own=lambda _: own)


def tcp_doors(
    sockets: list[socket.socket],
    prepare: Callable[[socket.socket], None] = tune,
    *,
    own: Callable[[socket.socket], bool],
) -> list[Door]:
    """A `TcpDoor` of each listening socket; where one is refused, all of them are closed.

    Args:
        sockets: the doors' from here on.
        prepare: as of `TcpDoor`.
        own: whether only this user may connect to one.

    Raises:
        ConfigError: as of `TcpDoor`.
    """
    try:
        return [TcpDoor(listening, prepare, own=own(listening)) for listening in sockets]
    except ConfigError:
        for listening in sockets:
            listening.close()
        raise


class Acceptor:
    """Takes the connections that come in at some doors.

    It pauses while `UNMET_MAX` of them are in their handshake, which its owner ends by `settle`,
    while the owner holds it, for `PAUSE_S` while the process may have no further connection, and
    for as long where no descriptor is left: then the first peer in the queue is turned away rather
    than left to wait.

    Args:
        name: what the log calls it.
        doors: closed by `stop`.
        take: gets the descriptor of a connection, its own from then on also where it raises
            OSError for want of another one; it does not wait.

    Affinity: the running loop, and its thread.
    """

    def __init__(self, name: str, doors: Sequence[Door], take: Callable[[int], object]) -> None:
        self._name = name
        self._doors = doors
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._spare = -1
        self._unmet = 0
        self._accepting = self._held = self._exhausted = self._stopped = False
        self._resume()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Let nobody in any more. What runs goes on. Idempotent."""
        self._stopped = True
        self._update()
        for door in self._doors:
            door.close()
        self._drop_spare()

    def settle(self) -> None:
        """One handshake less is under way."""
        self._unmet -= 1
        self._update()

    def hold(self, held: bool) -> None:
        """Have peers wait in the kernel's queue, or no longer."""
        self._held = held
        self._update()

    def _update(self) -> None:
        """Watch the doors where somebody may come in."""
        closed = self._stopped or self._held or self._exhausted
        wanted = not closed and self._unmet < UNMET_MAX
        if wanted == self._accepting:
            return
        self._accepting = wanted
        for door in self._doors:
            if wanted:
                self._loop.add_reader(door.fileno(), self._accept, door)
            else:
                self._loop.remove_reader(door.fileno())

    def _accept(self, door: Door) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if not self._accepting:
                return
            if not process_has_room():
                self._rest()  # nobody tells when a connection of somebody else ends
                return
            try:
                if not self._enter(door):
                    return
            except (OSError, BrokenError) as error:
                system = error if isinstance(error, OSError) else error.__cause__
                if not isinstance(system, OSError):
                    raise
                if system.errno in NO_DESCRIPTOR:
                    self._turn_away(door, system)
                elif system.errno in NO_MEMORY:
                    self._tell_of_rest(system)
                    self._rest()
                else:
                    raise
                return
            self._update()

    def _enter(self, door: Door) -> bool:
        """Take one connection; false where none waits."""
        descriptor = door.accept()
        if descriptor is None:
            return False
        self._unmet += 1
        try:
            self._take(descriptor)
        except BaseException:
            self._unmet -= 1
            raise
        return True

    def _turn_away(self, door: Door, error: OSError) -> None:
        """Without a descriptor: turn the first in the queue away rather than let it wait."""
        self._tell_of_rest(error)
        self._drop_spare()
        with contextlib.suppress(OSError, BrokenError):
            descriptor = door.accept()
            if descriptor is not None:
                os.close(descriptor)
        self._keep_spare()
        self._rest()

    def _tell_of_rest(self, error: OSError) -> None:
        _log.error("%s accepts nobody for %g s: %s", self._name, PAUSE_S, error.strerror)

    def _rest(self) -> None:
        """Accept nobody for a moment."""
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
            with contextlib.suppress(OSError):  # somebody else was faster; tried again later
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
