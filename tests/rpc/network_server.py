"""A server in a process of its own: `python -m tests.rpc.network_server URL`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from forebay import rpc

TOKEN = "a token of the tests"


class Handler:
    """What a stranger may call."""

    def echo(self, value: Any) -> Any:
        return value

    def length(self, value: Any) -> int:
        return len(value)


async def main(url: str) -> None:
    """Serve until stdin ends; the first line of stdout is where."""
    token = None if url.startswith("unix:") else TOKEN
    async with rpc.serve(Handler(), url, token=token) as server:
        print(server.url, flush=True)  # noqa: T201 - the parent reads it
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
