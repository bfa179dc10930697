"""A thread-safe pool of reusable service processes."""

from forebay.pool._acquire import Acquire
from forebay.pool._default import acquire, default_pool, set_default_pool
from forebay.pool._lease import Lease
from forebay.pool._pool import ServicePool
from forebay.pool._reset import Reset
from forebay.pool._service import Service
from forebay.pool._spec import Command, Spec

__all__ = [
    "Acquire",
    "Command",
    "Lease",
    "Reset",
    "Service",
    "ServicePool",
    "Spec",
    "acquire",
    "default_pool",
    "set_default_pool",
]
