"""A durable queue of requests, and the workers that run them.

Names are loaded on first use: a template imports only what its workers need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.executor.app.application import App
    from forebay.executor.app.cancelled import Cancelled
    from forebay.executor.app.context import Context
    from forebay.executor.app.secret import Secret
    from forebay.executor.client.async_client import AsyncClient
    from forebay.executor.client.async_request import AsyncRequest
    from forebay.executor.client.client import Client
    from forebay.executor.client.follow import Progress
    from forebay.executor.client.items import AsyncItems, Items
    from forebay.executor.client.options import Submit
    from forebay.executor.client.request import Request
    from forebay.executor.futures.executor import Executor

__all__ = [
    "App",
    "AsyncClient",
    "AsyncItems",
    "AsyncRequest",
    "Cancelled",
    "Client",
    "Context",
    "Executor",
    "Items",
    "Progress",
    "Request",
    "Secret",
    "Submit",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "app.application": ("App",),
        "client.async_client": ("AsyncClient",),
        "client.async_request": ("AsyncRequest",),
        "app.cancelled": ("Cancelled",),
        "client.client": ("Client",),
        "app.context": ("Context",),
        "app.secret": ("Secret",),
        "client.follow": ("Progress",),
        "futures.executor": ("Executor",),
        "client.items": ("AsyncItems", "Items"),
        "client.options": ("Submit",),
        "client.request": ("Request",),
    },
)
