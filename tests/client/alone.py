"""A program that uses a gateway on a system that has little: no forebay, no Unix, no C.

`python alone.py URL TOKEN_FILE CA_FILE` refuses the imports first, and takes away what Windows does
not have. It prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib.abc import MetaPathFinder
from typing import Any

REFUSED = {"fcntl", "resource", "forebay", "msgspec", "msgpack", "numpy", "pwd", "termios"}
MISSING = [
    (socket, "AF_UNIX"),
    *((os, name) for name in ("fork", "geteuid", "getuid", "register_at_fork", "posix_spawn")),
]


class Refuses(MetaPathFinder):
    """Finds nothing of what this system does not have."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"no module named {name!r} here", name=name)


def socketpair() -> tuple[socket.socket, socket.socket]:
    """As Windows has it, for asyncio's own loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        return near, listener.accept()[0]


def take_away() -> None:
    """Make this process one of such a system."""
    sys.meta_path.insert(0, Refuses())
    for name in [name for name in sys.modules if name.partition(".")[0] in REFUSED]:
        del sys.modules[name]
    for module, name in MISSING:
        if hasattr(module, name):
            delattr(module, name)
    socket.socketpair = lambda *_: socketpair()


def blocking(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a thread sees."""
    import forebay_client
    from forebay_client import errors

    with forebay_client.Client(url, **options) as client:
        request = client.submit("talk", text="grün")
        events = [event["event"] for event in client.get(request.id).events()]
        held = client.submit("hold")
        cancelled = held.cancel()
        try:
            held.result(timeout=20)
        except errors.CancelledError:
            ended = held.status()
        array = client.run("array", count=3)
        return {
            "module": errors.Error.__module__,
            "log": "".join(request.logs()),
            "result": request.result(timeout=20),
            "events": "progress" in events,
            "cancelled": cancelled in ("now", "asked"),
            "ended": ended,
            "blob": list(client.run("reverse", blob=b"\x00\x01\xff")),
            "array": [array.dtype, *array.tolist()],
            "sum": client.run("total", values=array),
            "many": sum(one.result() for one in client.submit_many("double", [{"n": 1}] * 20)),
            "names": [one["name"] for one in client.list(limit=3)],
            "items": [list(one) for one in client.submit("yields", count=2).items()],
        }


async def awaiting(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a task sees."""
    import forebay_client

    async with forebay_client.AsyncClient(url, **options) as client:
        request = await client.submit("talk", text="blue")
        log = "".join([piece async for piece in request.logs()])
        requests = [await client.submit_nowait("double", n=at) for at in range(20)]
        return {
            "log": log,
            "result": await request.result(timeout=20),
            "many": sum([await one.result() for one in requests]),
            "items": [
                list(one) async for one in (await client.submit("yields", count=2)).items(after=1)
            ],
        }


def main() -> None:
    """Use the gateway, both ways."""
    url, token_file, ca_file = sys.argv[1:]
    take_away()
    options = {"token_file": token_file, "ca_file": ca_file, "timeout": 20.0}
    told: dict[str, Any] = {"blocking": blocking(url, options)}
    told["asyncio"] = "asyncio" in sys.modules
    import asyncio

    told["awaiting"] = asyncio.run(awaiting(url, options))
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
