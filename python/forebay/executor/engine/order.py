"""What a node is asked to run, and what a stand-in is told of the place where it waits for it."""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Self

from forebay.errors import ConfigError

__all__ = ["Certificates", "Order", "Place", "host_identity"]

PROTOCOL: Final = 1
"""Of orders and links; another number where one of them has changed."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of a cluster's TLS: its CA, and the certificate and key of this side."""

    ca: str
    cert: str
    key: str

    def context(self) -> ssl.SSLContext:
        """For a listener that accepts holders of certificates of this CA alone."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        context.load_verify_locations(self.ca)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class Place:
    """Where stand-ins wait for their nodes.

    Attributes:
        agent: path of the socket of what submits tasks to the cluster.
        host: of this machine, as the nodes reach it.
        certificates: for the links, where the cluster has TLS.
        silence: seconds after which a link that says nothing is lost.
    """

    agent: str
    host: str
    certificates: Certificates | None
    silence: float


@dataclass(frozen=True, slots=True)
class Order:
    """A worker that a node is to start.

    Attributes:
        kind: how `target` is read; this and the three that follow are as `Worker` takes them.
        code: hash of the application's sources, which those of the node have to have.
        pool: settings of the node's lender, as `PoolConfig` takes them.
        start_timeout: seconds that the import may take.
        host: where its stand-in listens, with `port`.
        secret: proves the node to the stand-in, in hexadecimal digits.
        is_encrypted: whether the link has TLS, with the certificates of the cluster.
        silence: as that of `Place`.
    """

    kind: str
    target: str
    attribute: str | None
    directory: str | None
    code: str = ""
    pool: dict[str, Any] = field(default_factory=dict)
    start_timeout: float = 120.0
    host: str = ""
    port: int = 0
    secret: str = field(default="", repr=False)
    is_encrypted: bool = False
    silence: float = 30.0

    def told(self) -> dict[str, Any]:
        """As it travels: plain data, which names who it is from."""
        return asdict(self) | _ours()

    @classmethod
    def of(cls, told: dict[str, Any]) -> Self:
        """What `told` gave.

        Raises:
            ConfigError: it is from another version.
        """
        ours = _ours()
        theirs = {name: told.get(name) for name in ours}
        if theirs != ours:
            raise ConfigError(
                f"node {socket.gethostname()} has {_named(ours)} and the server has"
                f" {_named(theirs)}; install the same version on both"
            )
        return cls(**{name: value for name, value in told.items() if name not in ours})


def _ours() -> dict[str, Any]:
    try:
        installed = version("forebay")
    except PackageNotFoundError:  # it lies on the path, and was not installed
        installed = "unknown"
    return {"version": installed, "protocol": PROTOCOL}


def _named(who: dict[str, Any]) -> str:
    return f"forebay {who['version']} (protocol {who['protocol']})"


def host_identity() -> str:
    """Tells machines and process namespaces apart: equal where process numbers mean the same."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"
