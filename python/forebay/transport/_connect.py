"""Connecting to a listener.

`open` and `_open` are no procedure of `forebay._steps`: they share the order of two waits, but not
who watches the time, what the connection is bound to or what is made of it. One would be longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from types import TracebackType
from typing import Any

from forebay._core import MessageConnection, TlsClient
from forebay.transport._access import encoded_token
from forebay.transport._address import Address, receiving
from forebay.transport._connection import Allocate, AsyncConnection, Connection
from forebay.transport._dial import dial, dial_blocking, late
from forebay.transport._limits import ConnectionLimits
from forebay.transport._stall import sweep_of
from forebay.transport._tls import Tls, check_tls

__all__ = ["Connect", "connect"]

CONNECT_TIMEOUT_S = 10.0


def connect(
    url: str,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    limits: ConnectionLimits | None = None,
    allocate: Allocate | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
) -> Connect:
    """Connect to a listener.

    `with connect(url) as connection` gives the face for threads, `async with` or `await` that of
    the running event loop.

    Args:
        url: `tcp://host:port`, `tls://host:port`, `unix:///path`, `shm:///path` (shared
            memory, to a process of the same user on this machine).
        tls: whom to believe and what to show, by `Tls.client`; for `tls://` alone.
        token: what the listener asks for, if it does.
        limits: of this end.
        allocate: what frames of 64 KiB and more are received into: called with a number of bytes,
            it returns a writable buffer of exactly that size, which `recv` then gives as the frame;
            of a long message for 4 MiB at a time, once the frames before have come;
            `Arena.allocate` is one. The buffer must have no other user meanwhile. Where it raises,
            that is reported as unraisable, and fresh memory is taken.
        timeout: seconds for connecting and for the handshake, together.

    Entering raises ConfigError (the URL), BrokenError (no listener, or it refuses this peer, or a
    certificate is refused), ProtocolError (the other end does not speak Forebay), DeadlineError.
    """
    address = receiving(url, allocate)
    check_tls(address.scheme, tls, TlsClient)
    return Connect(address, tls, token, limits or ConnectionLimits(), allocate, timeout)


class Connect:
    """A connection to be: nothing happens before it is entered, awaited or opened."""

    __slots__ = ("_address", "_allocate", "_limits", "_made", "_timeout", "_tls", "_token")

    def __init__(
        self,
        address: Address,
        tls: Tls | None,
        token: str | bytes | None,
        limits: ConnectionLimits,
        allocate: Allocate | None,
        timeout: float,
    ) -> None:
        self._address = address
        self._tls = tls
        self._token = encoded_token(token)
        self._limits = limits
        self._allocate = allocate
        self._timeout = timeout
        self._made: Any = None

    def open(self) -> Connection:
        """Connect in this thread; the connection is the caller's to close."""
        end = time.monotonic() + self._timeout
        core = self._core(dial_blocking(self._address, self._timeout))
        try:
            core.handshake_blocking(max(0.0, end - time.monotonic()))
            return Connection(core, self._address.scheme)
        except BaseException:
            core.close()
            raise

    def __await__(self) -> Generator[Any, None, AsyncConnection]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncConnection:
        self._made = await self._open()
        return self._made  # type: ignore[no-any-return]

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._made.__aexit__(kind, error, trace)

    def __enter__(self) -> Connection:
        self._made = self.open()
        return self._made  # type: ignore[no-any-return]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._made.__exit__(kind, error, trace)

    async def _open(self) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout):
                core = self._core(await dial(self._address))
                try:
                    core.bind(loop)
                    await core.handshake()
                    connection = AsyncConnection(core, self._address.scheme)
                    sweep_of(loop).watch(core, self._limits.stall_timeout_of(known=True))
                except BaseException:
                    core.close()
                    raise
        except TimeoutError:
            raise late(self._address, self._timeout) from None
        return connection

    def _core(self, descriptor: int) -> MessageConnection:
        return MessageConnection(
            descriptor,
            peer=str(self._address),
            token=self._token,
            trusted=True,  # we chose it
            limits=self._limits.of_connection(),
            allocate=self._allocate,
            shared=self._address.scheme == "shm",
            tls=None if self._tls is None else self._tls.core,
            host=self._address.host,
        )
