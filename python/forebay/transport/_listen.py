"""Listening for connections."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import overload

from forebay._core import Listener as UnixListener
from forebay._core import MessageConnection, TlsServer, process_has_room
from forebay.errors import BrokenError, ClosedError, ConfigError, ProtocolError
from forebay.transport._address import IP_SCHEMES, PATH_SCHEMES, Address, receiving
from forebay.transport._connection import Allocate, AsyncConnection
from forebay.transport._limits import Limits
from forebay.transport._native_listener import NativeListen, NativeListener
from forebay.transport._opening import Opening
from forebay.transport._socket import bind_all, name_of, resolve, tune
from forebay.transport._stall import sweep_of
from forebay.transport._tls import Tls, demand
from forebay.transport.native import Handler as NativeHandler

__all__ = ["AsyncListener", "Listen", "listen"]

Handler = Callable[[AsyncConnection], Awaitable[None]]

ACCEPTS_A_TURN = 64
UNMET_MAX = 256
"""Connections in their handshake at the same time; more wait in the kernel's queue."""
PAUSE_S = 0.1
"""How long accepting pauses when there is no descriptor left."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)

_log = logging.getLogger(__name__)


@overload
def listen(
    url: str,
    handler: Handler,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    limits: Limits | None = None,
    allocate: Allocate | None = None,
    handshake_timeout: float = 5.0,
    unprotected: bool = False,
    native: None = None,
) -> Listen: ...


@overload
def listen(
    url: str,
    handler: Handler | None = None,
    *,
    token: str | bytes | None = None,
    limits: Limits | None = None,
    handshake_timeout: float = 5.0,
    unprotected: bool = False,
    native: NativeHandler,
) -> NativeListen: ...


def listen(
    url: str,
    handler: Handler | None = None,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    limits: Limits | None = None,
    allocate: Allocate | None = None,
    handshake_timeout: float = 5.0,
    unprotected: bool = False,
    native: NativeHandler | None = None,
) -> Listen | NativeListen:
    """Listen for connections; `handler` runs once for each, in a task of its own.

    `async with listen(url, handler) as listener`, or await it and close it by `aclose()`.

    Args:
        url: `tcp://host:port` or `tls://host:port` (port 0: any that is free), `unix:///path` (its
            file gets 0600), `shm:///path` (the same, for shared memory).
        handler: gets an `AsyncConnection`, which is closed when it returns; what it raises is
            logged.
        tls: what to show and whom to let in, by `Tls.server`; for `tls://` alone.
        token: what a peer must show; needed where other machines can connect, unless `tls` asks
            for certificates.
        limits: of this end.
        allocate: as of `connect`.
        handshake_timeout: seconds in which a peer must say who it is.
        unprotected: let other machines connect without a token.
        native: answers in a thread that never takes the GIL, see `forebay.transport.native`; needs
            no event loop then: `with listen(url, native=Store()) as listener`. Beside a `handler`
            it is a `Table`, whose rest the handler gets.

    Raises:
        ConfigError: the URL, or nothing protects it. Entering raises OSError.
    """
    address = receiving(url, allocate)
    demand(address.scheme, tls, TlsServer)
    known = token is not None or (tls is not None and tls.mutual)
    if not address.loopback and not known and not unprotected:
        raise ConfigError(
            f"{url} can be reached from other machines: give token=, or tls= with client_ca=, or"
            " unprotected=True where everybody there may connect"
        )
    shown = token.encode() if isinstance(token, str) else token
    if native is not None:
        if allocate is not None:
            raise ConfigError(
                "allocate= is for handlers of Python; a native one has its own memory"
            )
        if tls is not None:
            raise ConfigError(f"{url}: native= is not served over TLS; give a handler alone")
        return NativeListen(
            NativeListener(address, native, handler, shown, limits or Limits(), handshake_timeout)
        )
    if handler is None:
        raise ConfigError(f"listen({url!r}) needs a handler, native= or both")
    return Listen(
        AsyncListener(address, handler, tls, shown, limits or Limits(), allocate, handshake_timeout)
    )


class Listen(Opening["AsyncListener"]):
    """A listener to be: nothing happens before it is entered or awaited."""

    __slots__ = ()


class AsyncListener:
    """What listens, and the connections that it has accepted.

    Attributes:
        url: what peers connect to, with the port that was chosen.

    Affinity: the loop in which it was opened.
    """

    def __init__(
        self,
        address: Address,
        handler: Handler,
        tls: Tls | None,
        token: bytes | None,
        limits: Limits,
        allocate: Allocate | None,
        handshake_timeout: float,
    ) -> None:
        self.url = str(address)
        self._address = address
        self._handler = handler
        self._tls = tls
        self._token = token
        self._limits = limits
        self._allocate = allocate
        self._handshake_timeout = handshake_timeout
        known = address.loopback or token is not None or (tls is not None and tls.mutual)
        self._stall_timeout = limits.stall_timeout_of(known=known)
        self._sockets: list[socket.socket] = []
        self._unix: UnixListener | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unmet = 0
        self._accepting = False
        self._spare = -1

    @property
    def connections(self) -> int:
        """How many are open, those in their handshake included."""
        return len(self._tasks)

    async def aclose(self) -> None:
        """Stop listening and close the connections; their handlers are cancelled. Idempotent."""
        self._pause()
        for listening in self._sockets:
            listening.close()
        self._sockets = []
        if self._unix is not None:
            self._unix.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self) -> AsyncListener:
        self._loop = asyncio.get_running_loop()
        self._sweep = sweep_of(self._loop)
        address = self._address
        if address.scheme in PATH_SCHEMES:
            self._unix = UnixListener(address.path)
        elif address.scheme in IP_SCHEMES:
            found = await resolve(self._loop, address.host, address.port, passive=True)
            self._sockets = bind_all(found, address.port)
            self.url = name_of(address.scheme, self._sockets[0].getsockname())
        else:
            raise ConfigError(f"{address}: {address.scheme}:// is not spoken here yet")
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._resume()
        return self

    def _listening(self) -> list[int]:
        if self._unix is not None:
            return [self._unix.fileno()]
        return [listening.fileno() for listening in self._sockets]

    def _resume(self) -> None:
        if not self._accepting and self._spare >= 0:
            self._accepting = True
            for place, descriptor in enumerate(self._listening()):
                self._loop.add_reader(descriptor, self._accept, place)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            for descriptor in self._listening():
                self._loop.remove_reader(descriptor)

    def _accept(self, place: int) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if self._unmet >= UNMET_MAX:
                self._pause()  # until one of them is met or gone
                return
            if not process_has_room():
                self._rest()
                return
            try:
                descriptor = self._next(place)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                self._refuse(place, error)
                return
            if descriptor is None:
                return
            self._unmet += 1
            task = self._loop.create_task(self._serve(descriptor))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next(self, place: int) -> int | None:
        if self._unix is not None:
            return self._unix.accept()
        try:
            accepted, _ = self._sockets[place].accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        accepted.setblocking(False)
        tune(accepted)
        return accepted.detach()

    def _refuse(self, place: int, error: OSError) -> None:
        """Without a descriptor: turn the first in the queue away rather than let it wait."""
        _log.error("%s accepts nobody for %g s: %s", self.url, PAUSE_S, error.strerror)
        os.close(self._spare)
        with contextlib.suppress(OSError):
            descriptor = self._next(place)
            if descriptor is not None:
                os.close(descriptor)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._rest()

    def _rest(self) -> None:
        """Accept nobody for a moment: nobody tells when there is room again."""
        self._pause()
        self._loop.call_later(PAUSE_S, self._resume)

    async def _serve(self, descriptor: int) -> None:
        met = False
        core: MessageConnection | None = None
        try:
            core = self._core(descriptor)  # shared memory may be refused to a peer, or to us
            core.bind(self._loop)
            async with asyncio.timeout(self._handshake_timeout):
                await core.meet()
            connection = AsyncConnection(core, self._address.scheme)
            self._sweep.watch(core, self._stall_timeout)
            met = True
            self._settle()
            await self._handler(connection)
            await connection.aclose()
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            _log.warning(
                "a peer of %s did not say who it is within %g s", self.url, self._handshake_timeout
            )
        except (BrokenError, ProtocolError, ClosedError) as error:
            _log.debug("a connection of %s ended: %s", self.url, error)
        except Exception:
            _log.exception("a handler of %s failed", self.url)
        finally:
            if core is not None:
                self._sweep.forget(core)
                core.close()
            if not met:
                self._settle()

    def _core(self, descriptor: int) -> MessageConnection:
        return MessageConnection(
            descriptor,
            peer=f"a peer of {self.url}",
            expected=self._token,
            trusted=self._address.loopback and self._token is None,
            limits=self._limits.as_dict(),
            allocate=self._allocate,
            shared=self._address.scheme == "shm",
            tls=None if self._tls is None else self._tls.core,
        )

    def _settle(self) -> None:
        """One handshake less is under way."""
        self._unmet -= 1
        if self._unmet == UNMET_MAX - 1:
            self._resume()
