"""Whose server a socket leads to, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from forebay.errors import ConfigError

_CREDENTIALS: Final = struct.Struct("iII")
"""`struct ucred` of unix(7): process, user, group."""


def peer_of(connected: socket.socket) -> tuple[int, int]:
    """The process at the other end of a Unix socket when it connected or listened, and its user."""
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(told)
    return process, user


def check_server(connected: socket.socket, where: str) -> None:
    """Refuse a server of another user, who would get the arguments and choose the results.

    Root's is taken too: root can read them in any case.

    Raises:
        ConfigError: it belongs to another user.
    """
    _, owner = peer_of(connected)
    if owner not in (os.geteuid(), 0):
        raise ConfigError(
            f"the server at {where} belongs to user {owner} and you are user {os.geteuid()}; "
            "start one of your own with: forebay serve"
        )
