"""What a program says about TLS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from forebay._core import MessageConnection, TlsClient, TlsServer
from forebay.errors import ConfigError

__all__ = ["Tls", "TlsPeer", "check_tls", "peer_of"]

Path = str | PathLike[str]
MinVersion = Literal["1.2", "1.3"]


@dataclass(frozen=True, slots=True, eq=False)
class Tls:
    """One side's certificates and demands; made by `Tls.server` or `Tls.client`.

    Make it once and share it: connections of one `Tls` resume each other's sessions. It follows
    its files: new connections use new certificates, open ones keep what they have.
    """

    core: TlsServer | TlsClient
    mutual: bool = False
    """Whether clients must show a certificate, or this client can."""

    @classmethod
    def server(
        cls,
        *,
        cert: Path,
        key: Path | None = None,
        client_ca: Path | None = None,
        alpn: Sequence[str] = (),
        min_version: MinVersion = "1.3",
    ) -> Tls:
        """What a listener shows and asks for.

        Args:
            cert: PEM file of the certificate, followed by those that lead to its CA.
            key: PEM file of its private key; without it, `cert` holds both.
            client_ca: PEM file of the CAs whose clients may connect; without it, all may.
            alpn: names of protocols, the best first; a client that names others alone is refused.
            min_version: "1.3", or "1.2" for clients that are not ours.

        Raises:
            ConfigError: a file cannot be read, or what is wrong in it.
        """
        core = TlsServer(
            cert, key or cert, client_ca=client_ca, alpn=_listed(alpn), min_version=min_version
        )
        return cls(core, client_ca is not None)

    @classmethod
    def client(
        cls,
        *,
        ca: Path,
        cert: Path | None = None,
        key: Path | None = None,
        server_name: str | None = None,
        check_hostname: bool = True,
        alpn: Sequence[str] = (),
        min_version: MinVersion = "1.3",
    ) -> Tls:
        """What a connecting side believes and shows.

        Args:
            ca: PEM file of the CAs, or of the very certificate, to believe.
            cert: PEM file of a certificate to show where the listener asks for one.
            key: PEM file of its private key; without it, `cert` holds both.
            server_name: the name to ask for, and to find in the certificate, instead of the host.
            check_hostname: whether the certificate must be made for that name. Without it, any
                holder of a certificate of that CA can answer.
            alpn: names of protocols, the best first.
            min_version: "1.3", or "1.2" for listeners that are not ours.

        Raises:
            ConfigError: a file cannot be read, or what is wrong in it.
        """
        if key is not None and cert is None:
            raise ConfigError(f"key={str(key)!r} needs cert=, the certificate that it belongs to")
        core = TlsClient(
            ca,
            identity=None if cert is None else (cert, key or cert),
            server_name=server_name,
            check_hostname=check_hostname,
            alpn=_listed(alpn),
            min_version=min_version,
        )
        return cls(core, cert is not None)

    @property
    def handshakes(self) -> dict[str, int]:
        """How many there were: `full`, `resumed`, `failed`."""
        return self.core.handshakes()

    @property
    def failure(self) -> str | None:
        """Why files that changed are not in use, if so."""
        return self.core.failure

    def reload(self) -> None:
        """Read the files again now; changed ones are also noticed when a connection is made.

        Raises:
            ConfigError: they cannot be used; what was read before stays in use.
        """
        self.core.reload()


@dataclass(frozen=True, slots=True)
class TlsPeer:
    """What a handshake found out."""

    version: str
    """ "TLSv1.3" or "TLSv1.2"."""
    cipher: tuple[str, str, int]
    """Name, version and secret bits, as `ssl.SSLSocket.cipher` gives them."""
    alpn: str | None
    resumed: bool
    """Whether an earlier session was resumed."""
    certificate: dict[str, Any]
    """The peer's own, as `ssl.SSLSocket.getpeercert` gives it; empty where it showed none."""
    chain: tuple[bytes, ...]
    """All that it showed, in DER, its own first."""


def peer_of(core: MessageConnection) -> TlsPeer | None:
    """What is known of the peer; None without TLS."""
    found = core.tls_peer()
    if found is None:
        return None
    certificate = found["certificate"] or {}
    for field in ("notBefore", "notAfter"):
        if field in certificate:
            certificate[field] = _worded(certificate[field])
    return TlsPeer(**{**found, "certificate": certificate})


def check_tls(scheme: str, tls: Tls | None, wanted: type[TlsServer] | type[TlsClient]) -> None:
    """Refuse a `tls=` that does not fit the URL.

    Raises:
        ConfigError: it is missing, of the other side, or given for a scheme without it.
    """
    word = "server" if wanted is TlsServer else "client"
    if scheme != "tls":
        if tls is not None:
            raise ConfigError(f"tls= is for tls:// URLs; {scheme}:// is not encrypted")
    elif tls is None:
        raise ConfigError(f"tls:// needs tls=Tls.{word}(...), which names the certificates")
    elif not isinstance(tls.core, wanted):
        raise ConfigError(f"this side needs tls=Tls.{word}(...); what it got is for the other side")


def _worded(seconds: int) -> str:
    """A date as OpenSSL words it: `Nov  1 09:30:00 2026 GMT`."""
    at = time.gmtime(seconds)
    return f"{time.strftime('%b', at)} {at.tm_mday:2d} {time.strftime('%H:%M:%S %Y', at)} GMT"


def _listed(names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise ConfigError(f"alpn={names!r} is one text; give a list of names")
    return list(names)
