"""Whose server a socket leads to, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

from forebay.errors import ConfigError

_CREDENTIALS: Final = struct.Struct("iII")
"""`struct ucred` of unix(7): process, user, group."""


def check_server(connected: socket.socket, where: str) -> None:
    """Refuse a server of another user, who would get the arguments and choose the results.

    Root's is taken too: root can read them in any case.

    Raises:
        ConfigError: it belongs to another user.
    """
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, owner, _ = _CREDENTIALS.unpack(told)
    if owner not in (os.geteuid(), 0):
        raise ConfigError(
            f"the server at {where} belongs to user {owner} and you are user {os.geteuid()}; "
            "start one of your own with: forebay serve"
        )
