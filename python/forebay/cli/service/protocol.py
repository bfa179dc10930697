"""The protocols of systemd for a service: notification, watchdog, passed sockets.

Sources: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3). Each is a variable of the
environment and a datagram or inherited descriptors, so no library is needed.

Reading a variable removes it: processes that are started from here on are not the service, and
must not speak for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import MutableMapping
from typing import Final, NamedTuple, Self

from forebay.errors import ConfigError

__all__ = ["Manager", "Passed", "take_sockets"]

FIRST_DESCRIPTOR: Final = 3
"""SD_LISTEN_FDS_START."""

DESCRIPTORS_MAX: Final = 64
"""Sockets that a unit passes; more are a mistake in its environment."""

SEND_S: Final = 1.0
"""How long a message may wait for systemd to read those before it."""


class Passed(NamedTuple):
    """An inherited descriptor; its owner closes it.

    Attributes:
        descriptor: its number.
        name: `FileDescriptorName=` of the unit.
    """

    descriptor: int
    name: str


class Manager:
    """Tells the service manager that started this process what becomes of it.

    A message that cannot be delivered is dropped: a service does not fail because its manager is
    busy. Any thread.

    Args:
        address: of the manager's socket, a path or `@` and an abstract name; None: there is none.
        watchdog_s: seconds without `alive` after which it ends the service; None: never.

    Attributes:
        address: as it was given.
    """

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        self.address = address
        self._address = address if address is None else _socket_address(address)
        self.watchdog_s = watchdog_s

    @classmethod
    def take(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """The one that the environment names, whose variables are removed.

        Raises:
            ConfigError: one of them is wrong.
        """
        address = environment.pop("NOTIFY_SOCKET", None) or None
        within = environment.pop("WATCHDOG_USEC", None)
        of = environment.pop("WATCHDOG_PID", None)
        if address is None or within is None or of not in (None, str(os.getpid())):
            return cls(address)
        return cls(address, _number("WATCHDOG_USEC", within) / 1e6)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self._address is not None

    def ready(self, status: str = "") -> None:
        """It serves, or has reloaded."""
        self._send("READY=1", status)

    def reloading(self) -> None:
        """It loads its code anew; `ready` follows."""
        self._send("RELOADING=1", more=f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str = "", *, within_s: float | None = None) -> None:
        """It has begun to end.

        Args:
            status: how it is.
            within_s: it needs at most so many seconds. The manager waits for as long, or for
                `TimeoutStopSec=` where that is longer; None: for `TimeoutStopSec=`.
        """
        more = "" if within_s is None else f"EXTEND_TIMEOUT_USEC={math.ceil(within_s * 1e6)}"
        self._send("STOPPING=1", status, more=more)

    def replaced(self, pid: int) -> None:
        """Another process is the service from now on, and alone is listened to."""
        self._send(f"MAINPID={pid}")

    def status(self, status: str) -> None:
        """How it is, in one line for people."""
        self._send("", status)

    def alive(self) -> None:
        """It does not hang."""
        self._send("WATCHDOG=1")

    def _send(self, state: str, status: str = "", *, more: str = "") -> None:
        if self._address is None:
            return
        # A line of a status would be a message of its own.
        told = f"STATUS={' '.join(status.split())}" if status else ""
        message = "\n".join(line for line in (state, told, more) if line)
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            sender.settimeout(SEND_S)
            sender.sendto(message.encode(errors="replace"), self._address)


def take_sockets(environment: MutableMapping[str, str] = os.environ) -> list[Passed]:
    """The sockets that the environment names, whose variables are removed.

    No process that is started from here on inherits them.

    Raises:
        ConfigError: a variable is wrong, or a descriptor is not open.
    """
    of = environment.pop("LISTEN_PID", None)
    count = environment.pop("LISTEN_FDS", None)
    names = environment.pop("LISTEN_FDNAMES", None)
    if count is None or of != str(os.getpid()):
        return []
    number = _number("LISTEN_FDS", count)
    if number > DESCRIPTORS_MAX:
        raise ConfigError(f"LISTEN_FDS={count}: at most {DESCRIPTORS_MAX} sockets are taken")
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + number)
    called = names.split(":") if names else ["unknown"] * number
    if len(called) != number:
        raise ConfigError(f"LISTEN_FDNAMES={names}: it names {len(called)} of {number} sockets")
    for descriptor in descriptors:
        try:
            os.set_inheritable(descriptor, False)
        except OSError as error:
            raise ConfigError(
                f"LISTEN_FDS={count}: descriptor {descriptor} is not open ({error.strerror})"
            ) from None
    return list(map(Passed, descriptors, called))


def _socket_address(text: str) -> str:
    if text.startswith("@"):
        return "\0" + text[1:]
    if not text.startswith("/"):
        raise ConfigError(f"NOTIFY_SOCKET={text}: expected a path, or @ and a name")
    return text


def _number(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{variable}={text}: expected a number")
    return int(text)
