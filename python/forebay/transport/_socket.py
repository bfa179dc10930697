"""Sockets as connections want them."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence
from typing import Any

from forebay._steps import Either, Steps
from forebay.errors import BrokenError

BACKLOG = 1024
PORT_CHOICES_MAX = 8
"""Ports that are tried where one number is to serve several addresses."""
KEEPALIVE_IDLE_S = 10
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 4
DEAD_AFTER_MS = 30_000
"""A peer that acknowledges nothing for so long is gone; TCP_USER_TIMEOUT in tcp(7)."""
NOT_HERE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What the kernel says of an address that this machine lacks, such as ::1 without IPv6."""


def tune(connected: socket.socket) -> None:
    """No delay for small messages, and an end for peers that vanished without a word."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)


def name_of(scheme: str, address: object) -> str:
    """A socket address as a URL."""
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    path = address.decode(errors="replace") if isinstance(address, bytes) else str(address)
    return f"{scheme}://{path}"


Found = tuple[socket.AddressFamily, tuple[object, ...]]
"""A family and an address in it."""


def resolve(host: str, port: int, *, passive: bool = False) -> Steps[list[Found]]:
    """The addresses of a host; one that is a number needs no look-up.

    Raises:
        BrokenError: the host is not known.
    """
    known = number(host, port)
    if known is not None:
        return [known]
    flags = socket.AI_PASSIVE if passive else 0

    def ask(getaddrinfo: Callable[..., Any]) -> Any:
        return getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)

    try:
        found = yield Either(
            lambda: ask(socket.getaddrinfo), lambda: ask(asyncio.get_running_loop().getaddrinfo)
        )
    except socket.gaierror as error:
        raise BrokenError(f"host {host!r}: {error.strerror}", delivered="no") from None
    return list(dict.fromkeys((family, where) for family, _, _, _, where in found))


def number(host: str, port: int) -> Found | None:
    """The address that a host is, where it is a number."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return socket.AF_INET, (host, port)
    return socket.AF_INET6, (host, port, 0, 0)


def bind_all(found: Sequence[Found], port: int) -> list[socket.socket]:
    """Listening sockets of all addresses of a host that are of this machine, with one port.

    Port 0 is chosen by the kernel for the first address; where another one has it taken, the next
    choice is tried.

    Raises:
        OSError: the port is taken at one address, or none is of this machine.
    """
    for _ in range(PORT_CHOICES_MAX - 1):
        try:
            return _bind(found, port)
        except OSError as error:
            if port != 0 or error.errno != errno.EADDRINUSE:
                raise
    return _bind(found, port)


def _bind(found: Sequence[Found], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, where in found:
            try:
                sockets.append(_listening(family, (where[0], port, *where[2:])))
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                missing = error
            else:
                port = port or sockets[-1].getsockname()[1]
        if missing is not None and not sockets:
            raise missing
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def _listening(family: socket.AddressFamily, where: tuple[object, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(where)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def refused(url: str, error: OSError) -> BrokenError:
    """The error of connecting where no server listens."""
    return BrokenError(
        f"{url}: {error.strerror or error}; is a server listening there?", delivered="no"
    )
