"""Forebay keeps slow-starting Python, or any program, warm in a separate process.

Borrow it in microseconds, and learn in milliseconds why it died.
Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.blockio import BlockFile, RecordFile
    from forebay.errors import (
        BlockError,
        BrokenError,
        BusyError,
        CancelledError,
        ClosedError,
        ConfigError,
        DeadlineError,
        DiedError,
        Error,
        InternalError,
        LimitError,
        OutOfRangeError,
        ProtocolError,
        RemoteError,
        StaleError,
    )
    from forebay.executor import App, AsyncClient, Client, Context, Executor, Secret, Submit
    from forebay.memory import Arena, Buffer
    from forebay.pool import (
        Command,
        Lease,
        Limits,
        NullPool,
        Reset,
        Service,
        ServicePool,
        SharedPool,
        Spec,
        acquire,
        default_pool,
        factory,
        set_default_pool,
    )
    from forebay.tensor import AsyncTensorClient, TensorClient, TensorServer

__all__ = [
    "App",
    "Arena",
    "AsyncClient",
    "AsyncTensorClient",
    "BlockError",
    "BlockFile",
    "BrokenError",
    "Buffer",
    "BusyError",
    "CancelledError",
    "Client",
    "ClosedError",
    "Command",
    "ConfigError",
    "Context",
    "DeadlineError",
    "DiedError",
    "Error",
    "Executor",
    "InternalError",
    "Lease",
    "LimitError",
    "Limits",
    "NullPool",
    "OutOfRangeError",
    "ProtocolError",
    "RecordFile",
    "RemoteError",
    "Reset",
    "Secret",
    "Service",
    "ServicePool",
    "SharedPool",
    "Spec",
    "StaleError",
    "Submit",
    "TensorClient",
    "TensorServer",
    "acquire",
    "default_pool",
    "factory",
    "set_default_pool",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "blockio": ("BlockFile", "RecordFile"),
        "executor": ("App", "AsyncClient", "Client", "Context", "Executor", "Secret", "Submit"),
        "memory": ("Arena", "Buffer"),
        "pool": (
            "Command",
            "Lease",
            "Limits",
            "NullPool",
            "Reset",
            "Service",
            "ServicePool",
            "SharedPool",
            "Spec",
            "acquire",
            "default_pool",
            "factory",
            "set_default_pool",
        ),
        "errors": (
            "BlockError",
            "BrokenError",
            "BusyError",
            "CancelledError",
            "ClosedError",
            "ConfigError",
            "DeadlineError",
            "DiedError",
            "Error",
            "InternalError",
            "LimitError",
            "OutOfRangeError",
            "ProtocolError",
            "RemoteError",
            "StaleError",
        ),
        "tensor": ("AsyncTensorClient", "TensorClient", "TensorServer"),
    },
)
