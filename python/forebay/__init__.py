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
    from forebay.executor import App, Context
    from forebay.memory import Arena, Buffer
    from forebay.pool import (
        Accepting,
        Command,
        Connected,
        Grpc,
        Http,
        JsonRpc,
        JsonRpcError,
        Lease,
        Limits,
        Line,
        NullPool,
        PortFile,
        Reset,
        Service,
        ServicePool,
        SharedPool,
        Spec,
        Started,
        acquire,
        default_pool,
        factory,
        set_default_pool,
    )

__all__ = [
    "Accepting",
    "App",
    "Arena",
    "BlockError",
    "BrokenError",
    "Buffer",
    "BusyError",
    "ClosedError",
    "Command",
    "ConfigError",
    "Connected",
    "Context",
    "DeadlineError",
    "DiedError",
    "Error",
    "Grpc",
    "Http",
    "InternalError",
    "JsonRpc",
    "JsonRpcError",
    "Lease",
    "LimitError",
    "Limits",
    "Line",
    "NullPool",
    "PortFile",
    "ProtocolError",
    "RemoteError",
    "Reset",
    "Service",
    "ServicePool",
    "SharedPool",
    "Spec",
    "StaleError",
    "Started",
    "acquire",
    "default_pool",
    "factory",
    "set_default_pool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "executor": ("App", "Context"),
        "memory": ("Arena", "Buffer"),
        "pool": (
            "Accepting",
            "Command",
            "Connected",
            "Grpc",
            "Http",
            "JsonRpc",
            "JsonRpcError",
            "Lease",
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
            "default_pool",
            "factory",
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
