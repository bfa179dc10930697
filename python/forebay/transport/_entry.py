"""Who may come in: tokens, and which listeners need one."""

from __future__ import annotations

from typing import NamedTuple

from forebay._core import TOKEN_BYTES_MAX, TlsServer
from forebay.errors import ConfigError
from forebay.transport._address import PATH_SCHEMES, Address
from forebay.transport._tls import Tls, demand

__all__ = ["Entry", "guard", "shown"]


def shown(token: str | bytes | None) -> bytes | None:
    """A token as it travels.

    Raises:
        ConfigError: it is empty or too long.
    """
    if token is None:
        return None
    shown = token.encode() if isinstance(token, str) else token
    if not 0 < len(shown) <= TOKEN_BYTES_MAX:
        raise ConfigError(f"token= has {len(shown)} bytes; give 1 to {TOKEN_BYTES_MAX}")
    return shown


class Entry(NamedTuple):
    """Whom a listener lets in.

    Attributes:
        token: what a peer must show.
        own: only this user may connect, which the kernel tells: a listener on the loopback
            interface that nothing else protects.
        known: whoever gets in is this user, or has shown a token or a certificate.
        trusted: memory for what a peer announces is obtained at once.
    """

    token: bytes | None
    own: bool
    known: bool
    trusted: bool


def guard(
    url: str, address: Address, tls: Tls | None, token: str | bytes | None, *, unprotected: bool
) -> Entry:
    """Whom a listener lets in.

    Raises:
        ConfigError: `tls` does not fit the URL, or nothing protects a listener that other machines
            can reach.
    """
    demand(address.scheme, tls, TlsServer)
    asked = token is not None or (tls is not None and tls.mutual)
    if not address.loopback and not asked and not unprotected:
        raise ConfigError(
            f"{url} can be reached from other machines: give token=, or tls= with client_ca=, or"
            " unprotected=True where everybody there may connect"
        )
    is_open = unprotected and address.scheme not in PATH_SCHEMES
    local = address.loopback and not is_open
    return Entry(
        token=shown(token),
        own=local and not asked and address.scheme not in PATH_SCHEMES,
        known=asked or local,
        trusted=local and not asked,
    )
