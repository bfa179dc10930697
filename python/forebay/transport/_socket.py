"""Sockets as connections want them."""

from __future__ import annotations

import socket

from forebay.errors import BrokenError

KEEPALIVE_IDLE_S = 10
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 4
DEAD_AFTER_MS = 30_000
"""A peer that acknowledges nothing for so long is gone; TCP_USER_TIMEOUT in tcp(7)."""


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


def refused(url: str, error: OSError) -> BrokenError:
    """What connecting raises when nobody answers."""
    return BrokenError(
        f"{url}: {error.strerror or error}; does anybody listen there?", delivered="no"
    )
