"""The gateway's connections on a real socket, with an application that a test writes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from uvicorn.config import Config

from forebay.gateway.http.census import Census
from forebay.gateway.http.protocol import Protocol
from forebay.gateway.http.state import State

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
"""A request."""

LAST_GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
"""One after whose answer the connection is closed."""

UNREAD_BYTES = 16 << 20
"""More than the buffers of a socket hold."""

Application = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Any]


class Served:
    """An application behind the gateway's protocol, on a port of its own.

    Attributes:
        state: of its connections.
        port: where it listens.
    """

    def __init__(self) -> None:
        self.state = State(Census(9, 9, 1 << 20))
        self.port = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A client."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    def look(self, seconds: float) -> None:
        """End what has run out of time so many seconds from now."""
        self.state.look(asyncio.get_running_loop().time() + seconds)

    async def all_gone(self) -> None:
        """Until no connection is left."""
        await until(lambda: not self.state.connections)


def serve(application: Application, test: Callable[[Served], Coroutine[Any, Any, None]]) -> None:
    """Run a test with an application; a fault that only a log would tell fails it too."""
    faults: list[Any] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: faults.append(told))
        config = Config(
            application, http=Protocol, ws="none", lifespan="off", interface="asgi3",
            log_config=None, access_log=False, proxy_headers=False,
        )  # fmt: skip
        config.load()
        served = Served()
        server = await loop.create_server(lambda: Protocol(config, served.state), "127.0.0.1", 0)
        served.port = server.sockets[0].getsockname()[1]
        async with server, asyncio.timeout(20):
            await test(served)
            for connection in list(served.state.connections):
                connection.transport.abort()
            await served.all_gone()
            if served.state.tasks:
                await asyncio.wait(list(served.state.tasks))
        gc.collect()  # then the loop is told of exceptions that nobody has looked at

    asyncio.run(run())
    assert faults == []


async def until(found: Callable[[], Any]) -> None:
    """Let the others run until something has come."""
    for _ in range(4000):
        if found():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it has not come in time")


async def answer(send: Callable[[Any], Awaitable[None]], body: bytes = b"ok") -> None:
    """Answer with a body that is complete."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": body})


def piece(body: bytes, *, more: bool = True) -> dict[str, Any]:
    """A piece of the body of an answer."""
    return {"type": "http.response.body", "body": body, "more_body": more}
