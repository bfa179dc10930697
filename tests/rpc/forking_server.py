"""A server that forks, as with multiprocessing: `python -m tests.rpc.forking_server KIND URL`.

It tells where it serves and who its child is; the child stays until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from forebay import rpc, transport
from forebay.tensor import TensorServer
from tests.rpc.network_server import TOKEN, Handler


@asynccontextmanager
async def serving(kind: str, url: str) -> AsyncIterator[str]:
    """A server of that kind; its URL."""
    token = None if url.startswith("unix:") else TOKEN
    if kind == "rpc":
        async with rpc.serve(Handler(), url, token=token) as calls:
            yield calls.url
    elif kind == "messages":
        async with transport.listen(url, _ignore, token=token) as listener:
            yield listener.url
    else:
        with TensorServer({"table": np.zeros(3)}, url, token=token) as server:
            yield server.url


async def _ignore(connection: Any) -> None:
    await connection.recv()


async def main(kind: str, url: str) -> None:
    """Serve, fork, and wait to be killed."""
    async with serving(kind, url) as where:
        child = os.fork()
        if child == 0:
            signal.pause()
        print(where, child, flush=True)  # noqa: T201 - the test reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
