"""A stream of grpc.aio, both ways, on uvloop; bytes as they are, without protocol buffers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.transport.side import Handler, Link, event_loop

METHOD = "/benchmark.Echo/Stream"
UNLIMITED = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]


class Side:
    """A server of one method, and channels to it."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop; grpc.aio finds it by `get_event_loop`."""
        return event_loop("uvloop")

    async def listen(self, handler: Handler) -> str:
        """Serve on a free port."""
        import grpc

        async def stream(_: Any, context: Any) -> None:
            await handler(Link(context.write, context.read, _first, _alone))

        _, service, method = METHOD.split("/")
        handlers = {method: grpc.stream_stream_rpc_method_handler(stream)}
        self._server = grpc.aio.server(options=UNLIMITED)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, handlers),)
        )
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def connect(self, address: str) -> Link:
        """Open a stream."""
        import grpc

        self._channel = grpc.aio.insecure_channel(address, options=UNLIMITED)
        stream = self._channel.stream_stream(METHOD)()
        return Link(stream.write, stream.read, _first, _alone)


def _first(frames: Sequence[bytes]) -> bytes:
    (frame,) = frames
    return frame


def _alone(message: bytes) -> list[bytes]:
    return [message]


def make() -> Side:
    """The side."""
    return Side()
