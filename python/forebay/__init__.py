"""Forebay keeps slow-starting Python, or any program, warm in a process of its own.

Borrow it in microseconds, and learn in milliseconds why it died.
Names are loaded on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        Spec,
        acquire,
        default_pool,
        set_default_pool,
    )

_HOMES = {
    "memory": ("Arena", "Buffer"),
    "pool": (
        "Command",
        "Lease",
        "Reset",
        "Service",
        "ServicePool",
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
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "Spec",
    "StaleError",
    "acquire",
    "default_pool",
    "set_default_pool",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"forebay.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
