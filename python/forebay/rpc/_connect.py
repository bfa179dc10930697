"""Channels to servers that listen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from forebay._core import Connection, connect_unix
from forebay.errors import BrokenError, ConfigError, DeadlineError
from forebay.rpc._channel import Channel
from forebay.rpc._codec import by_name

if TYPE_CHECKING:
    from forebay.transport import Tls
    from forebay.transport._internal import Address

__all__ = ["CONNECT_TIMEOUT_S", "Target", "aconnect", "connect", "socket_path"]

_SCHEME = "unix://"
CONNECT_TIMEOUT_S = 10.0
_NO_TOKEN = "if it asks for a token, give the same one by token="


def socket_path(address: str) -> str:
    """The path in "unix:///path".

    Raises:
        ConfigError: the address is not of that form.
    """
    path = address.removeprefix(_SCHEME)
    if path == address or not path.startswith("/"):
        raise ConfigError(f"address {address!r} is not of the form unix:///absolute/path")
    return path


def connect(
    url: str,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
    codec: str = "msgpack",
) -> Channel:
    """Connect to a server.

    Args:
        url: "unix:///path", "tcp://host:port" or "tls://host:port".
        tls: whom to believe and what to show, by `transport.Tls.client`; for `tls://` alone.
        token: what the server asks for, if it does.
        timeout: seconds for connecting and for the handshake, together.
        codec: "msgpack" for data; "pickle" for anything, only over `unix://` to a server of the
            same user.

    Raises:
        ConfigError: the URL, the codec, or an option that does not fit it.
        BrokenError: nobody listens there, it lets nobody in, or a certificate is refused;
            `.delivered` is "no".
        ProtocolError: something else answers.
        DeadlineError: nobody answered in time.

    Over a Unix socket without a token it does not wait for the server, which may be busy.
    """
    return Target(url, tls, token, timeout, codec).open()


async def aconnect(
    url: str,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
    codec: str = "msgpack",
) -> Channel:
    """As `connect`, without blocking the loop.

    Cancellation: safe; a connection that is made meanwhile is closed.
    """
    return await Target(url, tls, token, timeout, codec).aopen()


class Target:
    """Where channels go, and how they get in; arguments and errors as of `connect`.

    Args:
        meets: wait for the server's word over a Unix socket without a token too. Without it, a
            call may go to a server that leaves before it takes the connection up.
    """

    __slots__ = ("_address", "_codec", "_meets", "_path", "_tls", "_token", "timeout", "url")

    def __init__(
        self,
        url: str,
        tls: Tls | None,
        token: str | bytes | None,
        timeout: float,
        codec: str,
        *,
        meets: bool = False,
    ):
        by_name(codec)
        self.url = url
        self.timeout = timeout
        self._codec = codec
        self._tls = tls
        self._token = token.encode() if isinstance(token, str) else token
        self._path = ""
        self._address: Address | None = None
        if url.startswith(_SCHEME) and tls is None and token is None:
            self._path = socket_path(url)  # without loading the transport's Python
        else:
            self._parse(url, codec)
        self._meets = meets or self._address is not None

    def _parse(self, url: str, codec: str) -> None:
        from forebay._core import TlsClient
        from forebay.transport._internal import demand, parse, shown

        address = parse(url)
        if address.scheme == "shm":
            raise ConfigError(f"{url}: calls go over unix://, tcp:// or tls://")
        demand(address.scheme, self._tls, TlsClient)
        if address.scheme == "unix":
            self._path = socket_path(url)
        elif codec == "pickle":
            raise ConfigError(
                f"{url}: codec='pickle' is for processes of one user, over unix://;"
                " use codec='msgpack'"
            )
        self._address = address
        self._token = shown(self._token)

    def open(self, timeout: float | None = None) -> Channel:
        """A new channel; the caller's to close."""
        timeout = self.timeout if timeout is None else min(timeout, self.timeout)
        end = time.monotonic() + timeout
        connection: Connection | None = None
        try:
            connection = self._connection(self._dial_blocking(timeout))
            if self._meets:
                connection.handshake(max(0.0, end - time.monotonic()))
            return self._channel(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, DeadlineError):
                raise self._late(timeout) from None
            if connection is not None:
                self._advise(error)
            raise

    async def aopen(self, timeout: float | None = None) -> Channel:
        """The same on the running loop."""
        import asyncio

        from forebay.rpc._meet import meet

        timeout = self.timeout if timeout is None else min(timeout, self.timeout)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                connection = self._connection(await self._dial())
                if self._meets:
                    await meet(connection)
            return self._channel(connection)
        except TimeoutError:
            if connection is not None:
                connection.close()
            raise self._late(timeout) from None
        except BaseException as error:
            if connection is not None:
                connection.close()
            if connection is not None:
                self._advise(error)
            raise

    def _connection(self, descriptor: int) -> Connection:
        address = self._address
        return Connection(
            descriptor,
            peer=self.url,
            tls=None if self._tls is None else self._tls.core,
            host="" if address is None else address.host,
            token=self._token,
            trusted=True,  # we chose it
        )

    def _channel(self, connection: Connection) -> Channel:
        if self._codec == "pickle" and not connection.trusted:
            connection.close()
            raise ConfigError(
                f"{self.url} belongs to another user, so pickle is refused; use codec='msgpack'"
            )
        return Channel(connection, codec=self._codec, name=self.url)

    def _dial_blocking(self, timeout: float) -> int:
        if self._path or self._address is None:
            return connect_unix(self._path, timeout)
        from forebay.transport._internal import dial_blocking

        return dial_blocking(self._address, timeout)

    async def _dial(self) -> int:
        from forebay.transport._internal import dial, dial_unix

        if self._address is not None and not self._path:
            return await dial(self._address)
        return await dial_unix(self._path)

    def _late(self, timeout: float) -> DeadlineError:
        text = f"{self.url} did not answer within {timeout:g} s"
        if self._meets and self._token is None:
            text += f"; {_NO_TOKEN}"  # a server waits for it, until its handshake_timeout
        return DeadlineError(text, timeout=timeout)

    def _advise(self, error: BaseException) -> None:
        """A server lets in nobody who shows a wrong token, or none, and does not say why."""
        if type(error) is not BrokenError or not self._meets:
            return
        if self._token is None:
            own = " (one on the loopback interface that asks for none lets in its own user alone)"
            advice = _NO_TOKEN + (own if self._address and self._address.loopback else "")
        else:
            advice = "the one given by token= may not be the one that it asks for"
        error.args = (f"{error}, before it let this process in; {advice}",)
