"""What other packages of Forebay use of this one, but its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.transport._accept import Acceptor as Acceptor
    from forebay.transport._accept import ListeningSocket as ListeningSocket
    from forebay.transport._accept import open_listening as open_listening
    from forebay.transport._accept import tcp_listening as tcp_listening
    from forebay.transport._access import AccessPolicy as AccessPolicy
    from forebay.transport._access import access_policy as access_policy
    from forebay.transport._access import encoded_token as encoded_token
    from forebay.transport._address import PORT_MAX as PORT_MAX
    from forebay.transport._address import Address as Address
    from forebay.transport._address import parse as parse
    from forebay.transport._dial import dial as dial
    from forebay.transport._dial import dial_blocking as dial_blocking
    from forebay.transport._dial import dial_unix as dial_unix
    from forebay.transport._handler import Handler as Handler
    from forebay.transport._handler import run_handler as run_handler
    from forebay.transport._limits import STRANGER_TIMEOUT_S as STRANGER_TIMEOUT_S
    from forebay.transport._socket import bind_all as bind_all
    from forebay.transport._socket import name_of as name_of
    from forebay.transport._socket import resolve as resolve
    from forebay.transport._socket import tune as tune
    from forebay.transport._stall import sweep_of as sweep_of
    from forebay.transport._tls import check_tls as check_tls
    from forebay.transport._tls import peer_of as peer_of

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_accept": ("Acceptor", "ListeningSocket", "open_listening", "tcp_listening"),
        "_address": ("Address", "PORT_MAX", "parse"),
        "_dial": ("dial", "dial_blocking", "dial_unix"),
        "_access": ("AccessPolicy", "access_policy", "encoded_token"),
        "_handler": ("Handler", "run_handler"),
        "_limits": ("STRANGER_TIMEOUT_S",),
        "_socket": ("bind_all", "name_of", "resolve", "tune"),
        "_stall": ("sweep_of",),
        "_tls": ("check_tls", "peer_of"),
    },
)
