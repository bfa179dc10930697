"""Channels to servers that listen at a Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._core import Connection, connect_unix
from forebay.errors import ConfigError
from forebay.rpc._channel import Channel
from forebay.rpc._codec import by_name

if TYPE_CHECKING:
    import asyncio

__all__ = ["aconnect", "connect", "socket_path"]

_SCHEME = "unix://"


def socket_path(address: str) -> str:
    """The path in "unix:///path".

    Raises:
        ConfigError: the address is not of that form.
    """
    path = address.removeprefix(_SCHEME)
    if path == address or not path.startswith("/"):
        raise ConfigError(f"address {address!r} is not of the form unix:///absolute/path")
    return path


def connect(address: str, *, codec: str = "msgpack") -> Channel:
    """Connect to a server.

    Args:
        address: "unix:///path".
        codec: "msgpack" for data; "pickle" for anything, only to a server of the same user.

    Raises:
        ConfigError: the address or the codec is wrong.
        BrokenError: nobody listens there; `.delivered` is "no", the cause has the errno.
    """
    by_name(codec)
    connection = Connection(connect_unix(socket_path(address)), peer=address)
    if codec == "pickle" and not connection.trusted:
        connection.close()
        raise ConfigError(
            f"{address} belongs to another user, so pickle is refused; use codec='msgpack'"
        )
    return Channel(connection, codec=codec, name=address)


async def aconnect(address: str, *, codec: str = "msgpack") -> Channel:
    """As `connect`, without blocking the loop while the server's backlog is full.

    Cancellation: safe; a connection that is made meanwhile is closed.
    """
    import asyncio

    connecting = asyncio.get_running_loop().run_in_executor(None, _connect, address, codec)
    try:
        return await asyncio.shield(connecting)
    except asyncio.CancelledError:
        connecting.add_done_callback(_close_unused)
        raise


def _connect(address: str, codec: str) -> Channel:
    return connect(address, codec=codec)


def _close_unused(connecting: asyncio.Future[Channel]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
