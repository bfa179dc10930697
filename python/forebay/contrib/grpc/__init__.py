"""Pooled gRPC servers.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.contrib.grpc.server import Grpc

__all__ = ["Grpc"]

__getattr__, __dir__ = lazy(__name__, {"server": ("Grpc",)})
