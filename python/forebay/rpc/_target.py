"""Where channels go: the address of a server, with what lets a caller in.

`open` and `open_on_loop` are no procedure of `forebay._steps`: by one, which saved four lines, a
channel over a Unix socket was open and closed in 17.9 us instead of 15.1, by turns.
"""

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

__all__ = ["CONNECT_TIMEOUT_S", "Target", "client_target", "socket_path"]

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


class Target:
    """Where channels go, and how they get in; arguments and errors as of `connect`.

    Args:
        awaits_preface: wait for the server's preface over a Unix socket without a token too.
            Without it, a call may go to a server that leaves before it accepts the connection.
    """

    __slots__ = (
        "_address",
        "_awaits_preface",
        "_codec",
        "_path",
        "_tls",
        "_token",
        "timeout",
        "url",
    )

    def __init__(
        self,
        url: str,
        tls: Tls | None,
        token: str | bytes | None,
        timeout: float,
        codec: str,
        *,
        awaits_preface: bool = False,
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
        self._awaits_preface = awaits_preface or self._address is not None

    def _parse(self, url: str, codec: str) -> None:
        from forebay._core import TlsClient
        from forebay.transport._internal import check_tls, encoded_token, parse

        address = parse(url)
        if address.scheme == "shm":
            raise ConfigError(f"{url}: calls go over unix://, tcp:// or tls://")
        check_tls(address.scheme, self._tls, TlsClient)
        if address.scheme == "unix":
            self._path = socket_path(url)
        elif codec == "pickle":
            raise ConfigError(
                f"{url}: codec='pickle' is for processes of one user, over unix://;"
                " use codec='msgpack'"
            )
        self._address = address
        self._token = encoded_token(self._token)

    def open(self, timeout: float | None = None) -> Channel:
        """A new channel; the caller's to close."""
        timeout = self.timeout if timeout is None else min(timeout, self.timeout)
        end = time.monotonic() + timeout
        connection: Connection | None = None
        try:
            connection = self._connection(self._dial_blocking(timeout))
            if self._awaits_preface:
                connection.handshake(max(0.0, end - time.monotonic()))
            return self._channel(connection)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, DeadlineError):
                raise self.late(timeout) from None
            if connection is not None:
                self._advise(error)
            raise

    async def open_on_loop(self, timeout: float | None = None) -> Channel:
        """As `open`, without blocking the running loop.

        Cancellation: safe; a connection that is made meanwhile is closed.
        """
        import asyncio

        from forebay.rpc._handshake import handshake

        timeout = self.timeout if timeout is None else min(timeout, self.timeout)
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                connection = self._connection(await self._dial())
                if self._awaits_preface:
                    await handshake(connection)
            return self._channel(connection)
        except TimeoutError:
            if connection is not None:
                connection.close()
            raise self.late(timeout) from None
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

    def late(self, timeout: float) -> DeadlineError:
        """For a channel that was not open within `timeout` seconds."""
        text = f"{self.url} did not answer within {timeout:g} s"
        if self._awaits_preface and self._token is None:
            text += f"; {_NO_TOKEN}"  # a server waits for it, until its handshake_timeout
        return DeadlineError(text, timeout=timeout)

    def _advise(self, error: BaseException) -> None:
        """Name the token as a likely cause: a server closes without saying why it refuses one."""
        if type(error) is not BrokenError or not self._awaits_preface:
            return
        if self._token is None:
            own = " (without a token, one on the loopback interface accepts only its own user)"
            advice = _NO_TOKEN + (own if self._address and self._address.loopback else "")
        else:
            advice = "the one given by token= may not be the one that it asks for"
        error.args = (f"{error}, before it let this process in; {advice}",)


def client_target(
    url: str,
    tls: Tls | None,
    token: str | bytes | None,
    timeout: float,
    codec: str,
    connections: int,
) -> Target:
    """The target of a client, which waits for the server's preface on each of its connections.

    Raises:
        ConfigError: there are to be none, or as of `Target`.
    """
    if connections < 1:
        raise ConfigError(f"connections={connections}: a client of {url} needs 1 or more")
    return Target(url, tls, token, timeout, codec, awaits_preface=True)
