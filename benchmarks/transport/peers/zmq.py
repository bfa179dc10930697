"""pyzmq's asyncio sockets on uvloop.

A PAIR on each side, one message part: of what ZeroMQ has this came out fastest, by a little, and
with `send_multipart` or with ROUTER and DEALER it was slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.transport.side import Handler, Link, event_loop


class Side:
    """A PAIR that listens, and one that dials it."""

    def __init__(self) -> None:
        import zmq.asyncio

        self._zmq = zmq

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A loop."""
        return event_loop("uvloop")

    async def listen(self, handler: Handler) -> str:
        """Bind to a free port."""
        pair = self._pair()
        port = pair.bind_to_random_port("tcp://127.0.0.1")
        self._task = asyncio.ensure_future(handler(_link(pair)))
        return f"tcp://127.0.0.1:{port}"

    async def connect(self, address: str) -> Link:
        """Dial."""
        pair = self._pair()
        pair.connect(address)
        return _link(pair)

    def _pair(self) -> Any:
        # ZeroMQ's engine sets TCP_NODELAY by itself.
        self._context = self._zmq.asyncio.Context()
        return self._context.socket(self._zmq.PAIR)


def _link(pair: Any) -> Link:
    return Link(pair.send, pair.recv, _first, _alone)


def _first(frames: Sequence[bytes]) -> bytes:
    (frame,) = frames
    return frame


def _alone(message: bytes) -> list[bytes]:
    return [message]


def make() -> Side:
    """The side."""
    return Side()
