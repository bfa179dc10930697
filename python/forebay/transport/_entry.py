"""Who may come in: tokens, and which listeners need one."""

from __future__ import annotations

from forebay._core import TOKEN_BYTES_MAX, TlsServer
from forebay.errors import ConfigError
from forebay.transport._address import Address
from forebay.transport._tls import Tls, demand

__all__ = ["guard", "shown"]


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


def guard(
    url: str, address: Address, tls: Tls | None, token: str | bytes | None, *, unprotected: bool
) -> bytes | None:
    """The token that a listener asks for.

    Raises:
        ConfigError: `tls` does not fit the URL, or nothing protects a listener that other machines
            can reach.
    """
    demand(address.scheme, tls, TlsServer)
    known = token is not None or (tls is not None and tls.mutual)
    if not address.loopback and not known and not unprotected:
        raise ConfigError(
            f"{url} can be reached from other machines: give token=, or tls= with client_ca=, or"
            " unprotected=True where everybody there may connect"
        )
    return shown(token)
