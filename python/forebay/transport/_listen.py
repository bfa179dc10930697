"""Listening for connections."""

from __future__ import annotations

import asyncio
import logging
from typing import overload

from forebay._core import MessageConnection
from forebay.errors import ConfigError, Error
from forebay.transport._accept import Acceptor, open_listening
from forebay.transport._access import AccessPolicy, access_policy
from forebay.transport._address import Address, receiving
from forebay.transport._connection import Allocate, AsyncConnection
from forebay.transport._handler import Handler, log_failed_start, run_handler
from forebay.transport._limits import ConnectionLimits
from forebay.transport._native_listener import NativeListen, NativeListener
from forebay.transport._opening import Opening
from forebay.transport._stall import sweep_of
from forebay.transport._tls import Tls
from forebay.transport.native import Handler as NativeHandler

__all__ = ["AsyncListener", "Listen", "listen"]

_log = logging.getLogger(__name__)


@overload
def listen(
    url: str,
    handler: Handler,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    limits: ConnectionLimits | None = None,
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
    limits: ConnectionLimits | None = None,
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
    limits: ConnectionLimits | None = None,
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
        tls: what to show and which peers to accept, by `Tls.server`; for `tls://` alone.
        token: what a peer must show; needed where other machines can connect, unless `tls` asks
            for certificates. On the loopback interface, which every user of the machine reaches,
            without either only connections of this user are accepted.
        limits: of this end.
        allocate: as of `connect`.
        handshake_timeout: seconds that a peer has for its handshake.
        unprotected: let other machines, and other users of this one, connect without a token.
        native: answers in a thread that never takes the GIL, see `forebay.transport.native`; needs
            no event loop then: `with listen(url, native=Store()) as listener`. Beside a `handler`
            it is a `Table`, whose rest the handler gets.

    Raises:
        ConfigError: the URL, or nothing protects it. Entering raises OSError.
    """
    address = receiving(url, allocate)
    access = access_policy(url, address, tls, token, unprotected=unprotected)
    limits = limits or ConnectionLimits()
    if native is not None:
        if allocate is not None:
            raise ConfigError(
                "allocate= is for handlers of Python; a native one has its own memory"
            )
        if tls is not None:
            raise ConfigError(f"{url}: native= is not served over TLS; give a handler alone")
        return NativeListen(
            NativeListener(address, native, handler, access, limits, handshake_timeout)
        )
    if handler is None:
        raise ConfigError(f"listen({url!r}) needs a handler, native= or both")
    return Listen(AsyncListener(address, handler, tls, access, limits, allocate, handshake_timeout))


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
        access: AccessPolicy,
        limits: ConnectionLimits,
        allocate: Allocate | None,
        handshake_timeout: float,
    ) -> None:
        self.url = str(address)
        self._address = address
        self._handler = handler
        self._tls = tls
        self._access = access
        self._limits = limits
        self._allocate = allocate
        self._handshake_timeout = handshake_timeout
        self._stall_timeout = limits.stall_timeout_of(known=access.known)
        self._tasks: set[asyncio.Task[None]] = set()
        self._acceptor: Acceptor | None = None

    @property
    def connections(self) -> int:
        """How many are open, those in their handshake included."""
        return len(self._tasks)

    async def aclose(self) -> None:
        """Stop listening and close the connections; their handlers are cancelled. Idempotent."""
        if self._acceptor is not None:
            self._acceptor.stop()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self) -> AsyncListener:
        self._loop = asyncio.get_running_loop()
        self._sweep = sweep_of(self._loop)
        self.url, sockets = await open_listening(self._address, own=self._access.own)
        self._acceptor = Acceptor(self.url, sockets, self._take)
        return self

    def _take(self, descriptor: int) -> None:
        assert self._acceptor is not None
        try:
            core = self._core(descriptor)  # shared memory may be refused to a peer, or to us
        except Error as error:
            _log.warning("handshake on %s failed: %s", self.url, error)
            self._acceptor.end_handshake()
            return
        task = self._loop.create_task(self._serve(core, self._acceptor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, core: MessageConnection, acceptor: Acceptor) -> None:
        try:
            try:
                connection = await self._handshake(core)
            finally:
                acceptor.end_handshake()
            if connection is not None:
                self._sweep.watch(core, self._stall_timeout)
                await run_handler(self._handler, connection, self.url)
        finally:
            self._sweep.forget(core)
            core.close()

    async def _handshake(self, core: MessageConnection) -> AsyncConnection | None:
        """Wait for the handshake; None, and a line in the log, if it fails."""
        try:
            core.bind(self._loop)
            async with asyncio.timeout(self._handshake_timeout):
                await core.handshake()
            return AsyncConnection(core, self._address.scheme)
        except TimeoutError:
            _log.warning(
                "a peer of %s did not finish its handshake within %g s",
                self.url,
                self._handshake_timeout,
            )
        except (Error, OSError) as error:
            log_failed_start(error, self.url)
        return None

    def _core(self, descriptor: int) -> MessageConnection:
        return MessageConnection(
            descriptor,
            peer=f"a peer of {self.url}",
            expected=self._access.token,
            trusted=self._access.trusted,
            limits=self._limits.of_connection(),
            allocate=self._allocate,
            shared=self._address.scheme == "shm",
            tls=None if self._tls is None else self._tls.core,
        )
