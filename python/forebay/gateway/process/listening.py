"""The listening socket of a gateway, which its server binds and keeps."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from forebay.errors import ConfigError

__all__ = ["BACKLOG", "Bound", "adopt", "bind"]

BACKLOG: Final = 4096
"""Connections that wait while the gateway is started again; the kernel may allow fewer."""

PORT_MAX: Final = 65_535
LISTENING: Final = "0A"
"""The state of a listening socket in /proc/net/tcp (proc_net_tcp in the kernel's documents)."""


class Bound(NamedTuple):
    """A socket that listens.

    Attributes:
        listener: its owner closes it.
        host: as it was given.
        port: as it was given, or the one that the kernel chose for 0.
    """

    listener: socket.socket
    host: str
    port: int


def bind(address: str, *, encrypted: bool, plain: bool) -> Bound:
    """Listen at an address.

    Args:
        address: HOST:PORT; a host with colons in brackets; port 0 lets the kernel choose.
        encrypted: whether connections are encrypted there.
        plain: whether they may be in clear beyond loopback.

    Raises:
        ConfigError: it is no address, is taken, or is beyond loopback and in clear.
    """
    host, port = _split(address)
    family, where = _resolved(host, port)
    _check_clear(address, where[0], allowed=encrypted or plain)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"--http {address}: {_reason(error, port)}") from None
    return Bound(listener, host, listener.getsockname()[1])


def adopt(descriptor: int, name: str, *, encrypted: bool, plain: bool) -> Bound:
    """Take a socket that listens already, from whoever started this process.

    Args:
        descriptor: becomes the listener's, even if this raises.
        name: what it is called, for messages.
        encrypted: as of `bind`.
        plain: as of `bind`.

    Raises:
        ConfigError: it is no TCP socket that listens, or is beyond loopback and in clear.
    """
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise ConfigError(f"descriptor {descriptor} ({name}) is no socket") from None
    try:
        host, port = _own_address(listener, f"descriptor {descriptor} ({name})")
        _check_clear(f"fd://{name}, which is {host}:{port}", host, allowed=encrypted or plain)
    except ConfigError:
        listener.close()
        raise
    return Bound(listener, host, port)


def _own_address(listener: socket.socket, what: str) -> tuple[str, int]:
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        raise ConfigError(f"{what} is no TCP socket; write ListenStream=HOST:PORT into its unit")
    if listener.type != socket.SOCK_STREAM:
        raise ConfigError(f"{what} is no stream; write ListenStream= into its unit")
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ConfigError(f"{what} does not listen; write Accept=no into its unit")
    host, port = listener.getsockname()[:2]
    return str(host), int(port)


def _check_clear(what: str, host: str, *, allowed: bool) -> None:
    """Refuse what would go in clear beyond this machine."""
    if not (allowed or ipaddress.ip_address(host).is_loopback):
        raise ConfigError(
            f"--http {what}: other machines reach this address, and everything, tokens too,"
            " would go in clear; give --tls-cert and --tls-key, or --plain-http if a proxy before"
            " it encrypts"
        )


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"--http {address}: write an address with colons as [{host}]:{port}")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise ConfigError(
            f"--http {address}: give a host and a port, such as 127.0.0.1:8000 or [::1]:8000"
        )
    return host, int(port)


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Where a name leads; of several addresses the first one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"--http {host}:{port}: {error.strerror or error}") from None
    family, _, _, _, where = found[0]
    return family, (str(where[0]), int(where[1]))


def _reason(error: OSError, port: int) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"{error.strerror}"
    holders = ", ".join(sorted(set(_holders(port))))
    by = f" by {holders}" if holders else ""
    return f"the port is taken{by}; choose another one, or end what has it"


def _holders(port: int) -> Iterator[str]:
    """The processes that listen on a port, as far as this user may know."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(process / "fd"):
                if os.readlink(process / "fd" / descriptor) in sockets:
                    yield f"process {process.name} ({(process / 'comm').read_text().strip()})"


def _inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
