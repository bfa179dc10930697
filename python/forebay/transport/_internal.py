"""What other packages of Forebay use of this one, and its users do not.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.transport._accept import Acceptor as Acceptor, Door as Door, open_doors as open_doors, tcp_doors as tcp_doors
    from forebay.transport._address import Address as Address, PORT_MAX as PORT_MAX, parse as parse
    from forebay.transport._dial import dial as dial, dial_blocking as dial_blocking, dial_unix as dial_unix
    from forebay.transport._entry import Entry as Entry, guard as guard, shown as shown
    from forebay.transport._handler import Handler as Handler, run_handler as run_handler
    from forebay.transport._limits import STRANGER_TIMEOUT_S as STRANGER_TIMEOUT_S
    from forebay.transport._socket import bind_all as bind_all, name_of as name_of, resolve_blocking as resolve_blocking, tune as tune
    from forebay.transport._stall import sweep_of as sweep_of
    from forebay.transport._tls import demand as demand, peer_of as peer_of

__getattr__, __dir__ = lazy(__name__, {'_accept': ('Acceptor', 'Door', 'open_doors', 'tcp_doors'), '_address': ('Address', 'PORT_MAX', 'parse'), '_dial': ('dial', 'dial_blocking', 'dial_unix'), '_entry': ('Entry', 'guard', 'shown'), '_handler': ('Handler', 'run_handler'), '_limits': ('STRANGER_TIMEOUT_S',), '_socket': ('bind_all', 'name_of', 'resolve_blocking', 'tune'), '_stall': ('sweep_of',), '_tls': ('demand', 'peer_of')})
