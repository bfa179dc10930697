"""Forebay keeps slow-starting Python, or any program, warm in a process of its own.

Borrow it in microseconds, and learn in milliseconds why it died.
Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.errors import (
        BlockError,
        BrokenError,
        BusyError,
        ClosedError,
        ConfigError,
        DeadlineError,
        DiedError,
        Error,
        InternalError,
        LimitError,
        ProtocolError,
        RemoteError,
        StaleError,
    )
    from forebay.memory import Arena, Buffer
    from forebay.pool import (
        Command,
        Lease,
        Reset,
        Service,
        ServicePool,
        SharedPool,
        Spec,
        acquire,
        default_pool,
        set_default_pool,
    )

__all__ = [
    "Arena",
    "BlockError",
    "BrokenError",
    "Buffer",
    "BusyError",
    "ClosedError",
    "Command",
    "ConfigError",
    "DeadlineError",
    "DiedError",
    "Error",
    "InternalError",
    "Lease",
    "LimitError",
    "ProtocolError",
    "RemoteError",
    "Reset",
    "Service",
    "ServicePool",
    "SharedPool",
    "Spec",
    "StaleError",
    "acquire",
    "default_pool",
    "set_default_pool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "memory": ("Arena", "Buffer"),
        "pool": (
            "Command",
            "Lease",
            "Reset",
            "Service",
            "ServicePool",
            "SharedPool",
            "Spec",
            "acquire",
            "default_pool",
            "set_default_pool",
        ),
        "errors": (
            "BlockError",
            "BrokenError",
            "BusyError",
            "ClosedError",
            "ConfigError",
            "DeadlineError",
            "DiedError",
            "Error",
            "InternalError",
            "LimitError",
            "ProtocolError",
            "RemoteError",
            "StaleError",
        ),
    },
)
