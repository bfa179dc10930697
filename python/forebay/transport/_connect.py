"""Connecting to a listener."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Generator
from types import TracebackType
from typing import Any

from forebay._core import MessageConnection, TlsClient, connect_unix
from forebay.errors import ConfigError, DeadlineError
from forebay.transport._address import IP_SCHEMES, PATH_SCHEMES, Address, receiving
from forebay.transport._connection import Allocate, AsyncConnection, Connection
from forebay.transport._limits import Limits
from forebay.transport._socket import refused, resolve, tune
from forebay.transport._stall import sweep_of
from forebay.transport._tls import Tls, demand

__all__ = ["Connect", "connect"]

CONNECT_TIMEOUT_S = 10.0


def connect(
    url: str,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    limits: Limits | None = None,
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
            `Arena.allocate` is one. Nobody else uses the buffer meanwhile. Where it raises, that is
            reported as unraisable, and fresh memory is taken.
        timeout: seconds for connecting and for the handshake, together.

    Entering raises ConfigError (the URL), BrokenError (nobody answers, the listener lets nobody in,
    or a certificate is refused), ProtocolError (something else answers), DeadlineError.
    """
    address = receiving(url, allocate)
    demand(address.scheme, tls, TlsClient)
    return Connect(address, tls, token, limits or Limits(), allocate, timeout)


class Connect:
    """A connection to be: nothing happens before it is entered or awaited."""

    __slots__ = ("_address", "_allocate", "_limits", "_made", "_timeout", "_tls", "_token")

    def __init__(
        self,
        address: Address,
        tls: Tls | None,
        token: str | bytes | None,
        limits: Limits,
        allocate: Allocate | None,
        timeout: float,
    ) -> None:
        self._address = address
        self._tls = tls
        self._token = token.encode() if isinstance(token, str) else token
        self._limits = limits
        self._allocate = allocate
        self._timeout = timeout
        self._made: Any = None

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
        self._made = self._open_blocking()
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
                core = self._core(await self._dial(loop))
                try:
                    core.bind(loop)
                    await core.meet()
                    sweep_of(loop).watch(core, self._limits.stall_timeout_of(known=True))
                except BaseException:
                    core.close()
                    raise
        except TimeoutError:
            raise self._late() from None
        return AsyncConnection(core, self._address.scheme)

    def _open_blocking(self) -> Connection:
        end = time.monotonic() + self._timeout
        core = self._core(self._dial_blocking())
        try:
            core.meet_blocking(max(0.0, end - time.monotonic()))
        except BaseException:
            core.close()
            raise
        return Connection(core, self._address.scheme)

    def _core(self, descriptor: int) -> MessageConnection:
        return MessageConnection(
            descriptor,
            peer=str(self._address),
            token=self._token,
            trusted=True,  # we chose it
            limits=self._limits.as_dict(),
            allocate=self._allocate,
            shared=self._address.scheme == "shm",
            tls=None if self._tls is None else self._tls.core,
            host=self._address.host,
        )

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> int:
        address = self._address
        if address.scheme in PATH_SCHEMES:
            return connect_unix(address.path)
        if address.scheme not in IP_SCHEMES:
            raise self._unknown()
        failure: OSError | None = None
        for family, where in await resolve(loop, address.host, address.port):
            dialled = socket.socket(family, socket.SOCK_STREAM)
            try:
                dialled.setblocking(False)
                tune(dialled)
                await loop.sock_connect(dialled, where)
            except OSError as error:
                dialled.close()
                failure = error
            except BaseException:
                dialled.close()
                raise
            else:
                return dialled.detach()
        raise refused(str(address), failure or OSError(f"no address of {address.host}"))

    def _dial_blocking(self) -> int:
        address = self._address
        if address.scheme in PATH_SCHEMES:
            return connect_unix(address.path)
        if address.scheme not in IP_SCHEMES:
            raise self._unknown()
        try:
            dialled = socket.create_connection((address.host, address.port), self._timeout)
        except TimeoutError:
            raise self._late() from None
        except OSError as error:
            raise refused(str(address), error) from None
        tune(dialled)
        descriptor = dialled.detach()
        os.set_blocking(descriptor, False)
        return descriptor

    def _unknown(self) -> ConfigError:
        return ConfigError(f"{self._address}: {self._address.scheme}:// is not spoken here yet")

    def _late(self) -> DeadlineError:
        return DeadlineError(
            f"{self._address} did not answer within {self._timeout:g} s", timeout=self._timeout
        )
