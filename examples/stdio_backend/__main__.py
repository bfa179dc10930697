"""Pool the tool server, and say what that saves."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import forebay
from forebay.contrib.json_rpc import JsonRpc

SERVER = Path(__file__).with_name("server.py")

TOOLS = forebay.Command(
    [sys.executable, str(SERVER)],
    stdio=True,
    connect=JsonRpc(
        initialize={
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "example", "version": "1"},
        }
    ),
)
NAMES = ("dataclass", "ArgumentParser", "ConfigParser", "wraps", "no_such_name")


def find(name: str) -> str:
    """Ask a pooled server; it is lent for this one call."""
    with forebay.acquire(TOOLS) as backend:
        result = backend.client.call("tools/call", name="find_definition", arguments={"name": name})
    return str(result["content"][0]["text"])


def main() -> None:
    """Call once cold and some times warm."""
    for name in NAMES:
        began = time.perf_counter()
        places = find(name)
        took_ms = (time.perf_counter() - began) * 1000
        print(f"{took_ms:8.2f} ms  {name:<15} {places}")


if __name__ == "__main__":
    main()
