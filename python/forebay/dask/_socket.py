"""Sockets of comms, opened as Dask is configured."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from types import SimpleNamespace

import dask
from distributed.comm.addressing import unparse_host_port
from distributed.comm.tcp import set_tcp_timeout
from tornado.netutil import bind_sockets

__all__ = ["bind", "dial", "dial_unix", "is_loopback", "name_of", "name_of_unix", "tune"]

BIND_ATTEMPTS = 5
NUMERIC_ONLY = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


def tune(connected: socket.socket) -> None:
    """Send small messages at once, and give a peer up after `distributed.comm.timeouts.tcp`."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    set_tcp_timeout(SimpleNamespace(closed=lambda: False, socket=connected))


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine reaches a listening socket."""
    host = listening.getsockname()[0].partition("%")[0]
    return ipaddress.ip_address(host).is_loopback


async def dial(host: str, port: int) -> socket.socket:
    """Connect to the first address of a host that answers.

    Raises:
        OSError: none does, or it has none.
    """
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, where in await _addresses(loop, host, port):
        dialled = socket.socket(family, kind, protocol)
        try:
            dialled.setblocking(False)
            await loop.sock_connect(dialled, where)
            tune(dialled)
        except OSError as error:
            dialled.close()
            failure = error
        except BaseException:
            dialled.close()
            raise
        else:
            return dialled
    raise failure or OSError(f"{host} has no address")


async def _addresses(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    """The addresses of a host; a numeric one needs no thread."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=NUMERIC_ONLY)
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME:
            raise
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return found  # type: ignore[return-value]


def dial_unix(path: str) -> socket.socket:
    """Connect to a Unix socket.

    The kernel gives this end a name, so that both ends know what to call it.

    Raises:
        OSError: no server listens there; EAGAIN while too many wait to be accepted.
    """
    dialled = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        dialled.setblocking(False)
        dialled.bind("")  # "autobind" in unix(7)
        dialled.connect(path)
    except BaseException:
        dialled.close()
        raise
    return dialled


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of a host, with one port for all of them.

    Raises:
        OSError: the port is taken.
    """
    backlog = int(dask.config.get("distributed.comm.socket-backlog"))
    for attempt in range(1, BIND_ATTEMPTS + 1):
        try:
            return bind_sockets(port, address=host, backlog=backlog)
        except OSError:
            # A port that was free in one family may be taken in the other one.
            if port != 0 or attempt == BIND_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def name_of(address: tuple[object, ...]) -> str:
    """An address of a socket as Dask writes it: `host:port`, IPv6 in brackets."""
    host, port = address[:2]
    return unparse_host_port(str(host), int(str(port)))


def name_of_unix(address: str | bytes) -> str:
    """A path, or `@` and the name that the kernel gave a connecting end."""
    if isinstance(address, str):
        return address
    return "@" + address.lstrip(b"\0").decode(errors="replace")
