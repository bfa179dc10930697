"""Ports on the loopback interface: choosing one, and finding the process that listens there."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from forebay.errors import ConfigError, LimitError

LOOPBACK = "127.0.0.1"

LOWEST_PORT = 20_000
"""Ports are chosen from here to the first one that the kernel gives to outgoing connections (see
ip(7)): any connection, even our own first try, could take one of those before the program does."""

PORT_TRIES = 200

_LISTEN = "0A"


class Listener(NamedTuple):
    """A listening TCP socket of this network namespace."""

    exposed: bool
    """Whether it can be reached from outside this machine."""

    inode: int


def choose_port() -> int:
    """A port of the loopback interface that nothing is bound to now.

    Raises:
        LimitError: none was found.
    """
    highest = _first_ephemeral()
    for _ in range(PORT_TRIES):
        # Not by `random`: its state belongs to the program, and its import takes milliseconds.
        port = LOWEST_PORT + int.from_bytes(os.urandom(4)) % (highest - LOWEST_PORT)
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind((LOOPBACK, port))
            return port
    raise LimitError(
        f"{PORT_TRIES} ports between {LOWEST_PORT} and {highest} were all taken; "
        "use {socket}, or end what listens there",
        limit=PORT_TRIES,
    )


def _first_ephemeral() -> int:
    with contextlib.suppress(OSError, ValueError):
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
        if first > LOWEST_PORT + PORT_TRIES:
            return first
    return 32_768


def listeners(port: int) -> list[Listener]:
    """Who listens on a port."""
    return [*_listed("/proc/net/tcp", port), *_listed("/proc/net/tcp6", port)]


def _listed(table: str, port: int) -> Iterator[Listener]:
    try:
        with open(table) as lines:
            rows = lines.readlines()[1:]
    except OSError:  # a kernel without this protocol
        return
    for row in rows:
        fields = row.split()
        address, _, number = fields[1].rpartition(":")
        if fields[3] == _LISTEN and int(number, 16) == port:
            yield Listener(not _is_loopback(address), int(fields[9]))


def _is_loopback(address: str) -> bool:
    """Whether an address as the kernel prints it, 32-bit words of host order, is this machine's."""
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    raw = b"".join(words)
    if len(raw) == 4:
        return raw[0] == 127
    return raw == bytes(15) + b"\x01" or (raw[:12] == bytes(10) + b"\xff\xff" and raw[12] == 127)


def refuse_exposed(name: str, port: int) -> None:
    """Refuse a program that other machines can reach.

    Raises:
        ConfigError: it listens on more than the loopback interface.
    """
    if any(listener.exposed for listener in listeners(port)):
        raise ConfigError(
            f"{name} listens on port {port} of every interface, where other machines can reach it;"
            f" tell it to listen on {LOOPBACK}, or better on the Unix socket {{socket}}"
        )


def belongs_to(session: int, port: int) -> bool:
    """Whether the listener on a port is a process of this session: our program or its child.

    Another process may have taken the port before the program.
    """
    wanted = {f"socket:[{listener.inode}]" for listener in listeners(port)}
    return any(wanted & _sockets_of(pid) for pid in _members(session))


def _members(session: int) -> Iterator[str]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(stat[3]) == session:
                    yield entry


def _sockets_of(pid: str) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return found
