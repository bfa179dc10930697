"""Which peers may connect to a listener, by token, certificate or user."""

from __future__ import annotations

from typing import NamedTuple

from forebay._core import TOKEN_BYTES_MAX, TlsServer
from forebay.errors import ConfigError
from forebay.transport._address import PATH_SCHEMES, Address
from forebay.transport._tls import Tls, check_tls

__all__ = ["AccessPolicy", "access_policy", "encoded_token"]


def encoded_token(token: str | bytes | None) -> bytes | None:
    """A token as bytes, as it is sent.

    Raises:
        ConfigError: it is empty or too long.
    """
    if token is None:
        return None
    encoded = token.encode() if isinstance(token, str) else token
    if not 0 < len(encoded) <= TOKEN_BYTES_MAX:
        raise ConfigError(f"token= has {len(encoded)} bytes; give 1 to {TOKEN_BYTES_MAX}")
    return encoded


class AccessPolicy(NamedTuple):
    """Which peers a listener accepts.

    Attributes:
        token: what a peer must show.
        own: only this user may connect, as the kernel reports: of a listener on the loopback
            interface that nothing else protects.
        known: every accepted peer is this user, or has shown a token or a certificate.
        trusted: memory for what a peer announces is obtained at once.
    """

    token: bytes | None
    own: bool
    known: bool
    trusted: bool


def access_policy(
    url: str, address: Address, tls: Tls | None, token: str | bytes | None, *, unprotected: bool
) -> AccessPolicy:
    """Decide which peers a listener accepts.

    Raises:
        ConfigError: `tls` does not fit the URL, or nothing protects a listener that other machines
            can reach.
    """
    check_tls(address.scheme, tls, TlsServer)
    asked = token is not None or (tls is not None and tls.mutual)
    if not address.loopback and not asked and not unprotected:
        raise ConfigError(
            f"{url} can be reached from other machines: give token=, or tls= with client_ca=, or"
            " unprotected=True where every user there may connect"
        )
    is_open = unprotected and address.scheme not in PATH_SCHEMES
    local = address.loopback and not is_open
    return AccessPolicy(
        token=encoded_token(token),
        own=local and not asked and address.scheme not in PATH_SCHEMES,
        known=asked or local,
        trusted=local and not asked,
    )
