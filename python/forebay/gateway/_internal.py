"""What other packages of Forebay use of this one, and its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.gateway.access import Address as Address
    from forebay.gateway.local_token import offer_local as offer_local
    from forebay.gateway.login import LINK_S as LINK_S
    from forebay.gateway.login import new_link as new_link
    from forebay.gateway.process.certificate import Certificate as Certificate
    from forebay.gateway.process.listening import adopt as adopt
    from forebay.gateway.process.listening import bind as bind
    from forebay.gateway.process.settings import Settings as Settings
    from forebay.gateway.process.supervisor import GatewayProcess as GatewayProcess
    from forebay.gateway.process.supervisor import check_installed as check_installed
    from forebay.gateway.token import LOCAL as LOCAL
    from forebay.gateway.token import Role as Role
    from forebay.gateway.token import Token as Token
    from forebay.gateway.token_file import add_token as add_token
    from forebay.gateway.token_file import read_tokens as read_tokens
    from forebay.gateway.token_file import remove_token as remove_token
    from forebay.gateway.token_file import rfc3339 as rfc3339

__getattr__, __dir__ = lazy(
    __name__,
    {
        "access": ("Address",),
        "local_token": ("offer_local",),
        "login": ("LINK_S", "new_link"),
        "process.certificate": ("Certificate",),
        "process.listening": ("adopt", "bind"),
        "process.settings": ("Settings",),
        "process.supervisor": ("GatewayProcess", "check_installed"),
        "token": ("LOCAL", "Role", "Token"),
        "token_file": ("add_token", "read_tokens", "remove_token", "rfc3339"),
    },
)
