"""A thread-safe pool of reusable service processes.

Names are loaded on first use: a template imports only what its services need, because every
page that it has touched is one that a fork may have to copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.pool._acquire import Acquire
    from forebay.pool._command import Command
    from forebay.pool._default import acquire, default_pool, set_default_pool
    from forebay.pool._lease import Lease
    from forebay.pool._pool import ServicePool
    from forebay.pool._reset import Reset
    from forebay.pool._service import Service
    from forebay.pool._shared_lender import Lender
    from forebay.pool._shared_pool import SharedPool
    from forebay.pool._spec import Spec

__all__ = [
    "Acquire",
    "Command",
    "Lease",
    "Lender",
    "Reset",
    "Service",
    "ServicePool",
    "SharedPool",
    "Spec",
    "acquire",
    "default_pool",
    "set_default_pool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_acquire": ("Acquire",),
        "_command": ("Command",),
        "_default": ("acquire", "default_pool", "set_default_pool"),
        "_lease": ("Lease",),
        "_pool": ("ServicePool",),
        "_reset": ("Reset",),
        "_service": ("Service",),
        "_shared_lender": ("Lender",),
        "_shared_pool": ("SharedPool",),
        "_spec": ("Spec",),
    },
)
