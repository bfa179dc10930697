"""The errors that this client raises: forebay's own classes where forebay is installed.

`except forebay.LimitError` works then for both clients. Elsewhere they are the same classes from
the same source: `_errors.py` is forebay's `errors.py`, which imports nothing of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay_client._errors import (
        BrokenError,
        CancelledError,
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
        remote_error,
    )

__all__ = [
    "BrokenError",
    "CancelledError",
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
    "remote_error",
]

try:
    _source = import_module("forebay.errors")
except ImportError:
    _source = import_module("forebay_client._errors")
globals().update({name: getattr(_source, name) for name in __all__})
