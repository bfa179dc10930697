"""A durable queue of requests, and the workers that run them.

Names are loaded on first use: a template imports only what its workers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.executor._app import App
    from forebay.executor._async_client import AsyncClient
    from forebay.executor._async_request import AsyncRequest
    from forebay.executor._cancel import Cancelled
    from forebay.executor._client import Client
    from forebay.executor._context import Context
    from forebay.executor._follow import Progress
    from forebay.executor._futures import Executor
    from forebay.executor._options import Submit
    from forebay.executor._request import Request

__all__ = [
    "App",
    "AsyncClient",
    "AsyncRequest",
    "Cancelled",
    "Client",
    "Context",
    "Executor",
    "Progress",
    "Request",
    "Submit",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "_app": ("App",),
        "_async_client": ("AsyncClient",),
        "_async_request": ("AsyncRequest",),
        "_cancel": ("Cancelled",),
        "_client": ("Client",),
        "_context": ("Context",),
        "_follow": ("Progress",),
        "_futures": ("Executor",),
        "_options": ("Submit",),
        "_request": ("Request",),
    },
)
