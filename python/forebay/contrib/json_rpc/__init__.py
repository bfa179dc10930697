"""Pooled programs that speak JSON-RPC 2.0, MCP servers among them.

Names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._lazy import lazy

if TYPE_CHECKING:
    from forebay.contrib.json_rpc.program import AsyncJsonRpcClient, JsonRpc, JsonRpcClient
    from forebay.contrib.json_rpc.session import JsonRpcError

__all__ = ["AsyncJsonRpcClient", "JsonRpc", "JsonRpcClient", "JsonRpcError"]

__getattr__, __dir__ = lazy(
    __name__,
    {"program": ("AsyncJsonRpcClient", "JsonRpc", "JsonRpcClient"), "session": ("JsonRpcError",)},
)
