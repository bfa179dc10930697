"""A durable queue of requests, and the workers that run them.

Names are loaded on first use: a template imports only what its workers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.executor._app import App
    from forebay.executor._cancel import Cancelled
    from forebay.executor._context import Context

__all__ = ["App", "Cancelled", "Context"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_app": ("App",),
        "_cancel": ("Cancelled",),
        "_context": ("Context",),
    },
)
