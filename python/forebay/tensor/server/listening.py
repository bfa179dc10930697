"""The listening sockets of a tensor server, with what protects them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay._core import TlsServer
from forebay._steps import block
from forebay.errors import ConfigError
from forebay.transport import Tls
from forebay.transport._internal import access_policy, bind_all, name_of, parse, resolve

__all__ = ["Listening", "listen_at"]

Listening = tuple[list[int], "str | None", "TlsServer | None", "bytes | None"]
"""Listening sockets (given away) or a path, TLS, and the token that clients must show."""


def listen_at(
    url: str,
    token: str | bytes | None,
    tls: Tls | Mapping[str, Any] | None,
    *,
    unprotected: bool,
) -> tuple[str, Listening, bool]:
    """Listen at a URL; the one that clients connect to, what the core serves, and to whom.

    The last is true where only this user may connect, over the loopback interface.

    Raises:
        ConfigError: the URL cannot be served, or nothing protects it.
        BrokenError: the host is not known. OSError: it cannot be listened at.
    """
    address = parse(url)
    if address.scheme not in ("tcp", "tls", "unix"):
        raise ConfigError(f"{url}: tensors go over tcp://, tls:// and unix://")
    shown = tls if tls is None or isinstance(tls, Tls) else Tls.server(**tls)
    access = access_policy(url, address, shown, token, unprotected=unprotected)
    core = None if shown is None else shown.core
    assert core is None or isinstance(core, TlsServer), "checked by access_policy"
    if address.scheme == "unix":
        return url, ([], address.path, core, access.token), False
    found = block(resolve(address.host, address.port, passive=True), None)
    sockets = bind_all(found, address.port)
    where = name_of(address.scheme, sockets[0].getsockname())
    return where, ([each.detach() for each in sockets], None, core, access.token), access.own
