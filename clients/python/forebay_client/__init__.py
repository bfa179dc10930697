"""Submits requests to a Forebay server over HTTP, from any system.

    with forebay_client.Client("https://queue.example:8080", token_file="token") as client:
        client.submit("tune", budget=80).result()

What is for event loops is loaded on first use, so that other programs do not load asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from forebay_client.client import Client
from forebay_client.http.hidden import Hidden
from forebay_client.items import AsyncItems, Items
from forebay_client.options import Submit
from forebay_client.progress import Progress
from forebay_client.request import Request
from forebay_client.values.array import Array

if TYPE_CHECKING:
    from forebay_client.async_client import AsyncClient
    from forebay_client.async_request import AsyncRequest

__all__ = [
    "Array",
    "AsyncClient",
    "AsyncItems",
    "AsyncRequest",
    "Client",
    "Hidden",
    "Items",
    "Progress",
    "Request",
    "Submit",
]

__version__ = "0.1.0"

_LATER: Final = {"AsyncClient": "async_client", "AsyncRequest": "async_request"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return value
