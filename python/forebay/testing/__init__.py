"""What the tests of Forebay use, for the tests of its users too.

`forebay.testing.chaos` kills, stops and delays the processes of a pool at random, from a seed, and
checks afterwards that nothing is left.

A `Ledger` keeps account of requests outside of the server, and its `Verdict` says which were lost,
doubled or wrong.

`connection_pair` and `memory_listen` connect within one process, over a `Wire` that delays, cuts,
truncates or resets at a byte of your choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.testing._ledger import Ledger
    from forebay.testing._memory import MemoryListener, connection_pair, memory_listen
    from forebay.testing._verdict import Verdict
    from forebay.testing._wire import Wire

__all__ = ["Ledger", "MemoryListener", "Verdict", "Wire", "connection_pair", "memory_listen"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_ledger": ("Ledger",),
        "_memory": ("MemoryListener", "connection_pair", "memory_listen"),
        "_verdict": ("Verdict",),
        "_wire": ("Wire",),
    },
)
