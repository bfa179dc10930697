"""A thread-safe pool of reusable service processes.

Names are loaded on first use: a template imports only what its services need, because every
page that it has touched is one that a fork may have to copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.pool.lend.acquire import Acquire
    from forebay.pool.lend.default import acquire, default_pool, set_default_pool
    from forebay.pool.lend.gather import call_many
    from forebay.pool.lend.lease import AsyncLease, Lease
    from forebay.pool.lend.null import NullPool
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.programs.backend import Backend
    from forebay.pool.programs.command import Command
    from forebay.pool.programs.connect import Connected, Connector
    from forebay.pool.programs.readiness import Accepting, Http, Line, PortFile
    from forebay.pool.programs.started import Started
    from forebay.pool.service.factory import Factory, factory
    from forebay.pool.service.limits import Limits
    from forebay.pool.service.reset import Reset
    from forebay.pool.service.service import Service
    from forebay.pool.service.spec import Spec
    from forebay.pool.shared.lender import Lender
    from forebay.pool.shared.pool import SharedPool
    from forebay.pool.watch.events import AsyncEvents, Event, Events

__all__ = [
    "Accepting",
    "Acquire",
    "AsyncEvents",
    "AsyncLease",
    "Backend",
    "Command",
    "Connected",
    "Connector",
    "Event",
    "Events",
    "Factory",
    "Http",
    "Lease",
    "Lender",
    "Limits",
    "Line",
    "NullPool",
    "PortFile",
    "Reset",
    "Service",
    "ServicePool",
    "SharedPool",
    "Spec",
    "Started",
    "acquire",
    "call_many",
    "default_pool",
    "factory",
    "set_default_pool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "lend.acquire": ("Acquire",),
        "programs.backend": ("Backend",),
        "programs.command": ("Command",),
        "programs.connect": ("Connected", "Connector"),
        "lend.default": ("acquire", "default_pool", "set_default_pool"),
        "watch.events": ("AsyncEvents", "Event", "Events"),
        "service.factory": ("Factory", "factory"),
        "lend.gather": ("call_many",),
        "lend.lease": ("AsyncLease", "Lease"),
        "service.limits": ("Limits",),
        "lend.null": ("NullPool",),
        "lend.pool": ("ServicePool",),
        "programs.readiness": ("Accepting", "Http", "Line", "PortFile"),
        "service.reset": ("Reset",),
        "service.service": ("Service",),
        "shared.lender": ("Lender",),
        "shared.pool": ("SharedPool",),
        "service.spec": ("Spec",),
        "programs.started": ("Started",),
    },
)
