"""A thread-safe pool of reusable service processes.

Names are loaded on first use: a template imports only what its services need, because every
page that it has touched is one that a fork may have to copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.pool._acquire import Acquire
    from forebay.pool._backend import Backend
    from forebay.pool._command import Command
    from forebay.pool._connect import Connected, Connector
    from forebay.pool._default import acquire, default_pool, set_default_pool
    from forebay.pool._events import Event, Events
    from forebay.pool._factory import Factory, factory
    from forebay.pool._gather import call_many
    from forebay.pool._grpc import Grpc
    from forebay.pool._json_rpc import AsyncJsonRpcClient, JsonRpc, JsonRpcClient, JsonRpcError
    from forebay.pool._lease import Lease
    from forebay.pool._limits import Limits
    from forebay.pool._null import NullPool
    from forebay.pool._pool import ServicePool
    from forebay.pool._readiness import Accepting, Http, Line, PortFile
    from forebay.pool._reset import Reset
    from forebay.pool._service import Service
    from forebay.pool._shared_lender import Lender
    from forebay.pool._shared_pool import SharedPool
    from forebay.pool._spec import Spec
    from forebay.pool._started import Started

__all__ = [
    "Accepting",
    "Acquire",
    "AsyncJsonRpcClient",
    "Backend",
    "Command",
    "Connected",
    "Connector",
    "Event",
    "Events",
    "Factory",
    "Grpc",
    "Http",
    "JsonRpc",
    "JsonRpcClient",
    "JsonRpcError",
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
        "_acquire": ("Acquire",),
        "_backend": ("Backend",),
        "_command": ("Command",),
        "_connect": ("Connected", "Connector"),
        "_default": ("acquire", "default_pool", "set_default_pool"),
        "_events": ("Event", "Events"),
        "_factory": ("Factory", "factory"),
        "_grpc": ("Grpc",),
        "_json_rpc": ("AsyncJsonRpcClient", "JsonRpc", "JsonRpcClient", "JsonRpcError"),
        "_gather": ("call_many",),
        "_lease": ("Lease",),
        "_limits": ("Limits",),
        "_null": ("NullPool",),
        "_pool": ("ServicePool",),
        "_readiness": ("Accepting", "Http", "Line", "PortFile"),
        "_reset": ("Reset",),
        "_service": ("Service",),
        "_shared_lender": ("Lender",),
        "_shared_pool": ("SharedPool",),
        "_spec": ("Spec",),
        "_started": ("Started",),
    },
)
