"""What a contestant of the transport benchmarks is to the harness: a listener and a connector.

One module for each, named as here; its `make` takes the options of the contestant.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

SIDES = {
    "dask": "benchmarks.transport.peers.dask",
    "forebay": "benchmarks.transport.forebay",
    "grpc": "benchmarks.transport.peers.grpc",
    "uvloop": "benchmarks.transport.peers.uvloop",
    "zmq": "benchmarks.transport.peers.zmq",
}


@dataclass(frozen=True)
class Stream:
    """A connection's way of sending many small messages that nobody waits for.

    Attributes:
        put: hand over a list of messages.
        take: wait for some, at least one.
        message: make a message of one frame.
        frame: the frame of a message that was taken.
    """

    put: Callable[[list[Any]], Awaitable[object]]
    take: Callable[[], Awaitable[list[Any]]]
    message: Callable[[bytes], Any]
    frame: Callable[[Any], Sized]


@dataclass(frozen=True)
class Link:
    """One end of a connection; each callable is the contestant's own, with nothing around it.

    Attributes:
        send: hand over a message.
        recv: wait for one.
        message: make, from frames, what `send` takes; done once, ahead of the measuring.
        frames: the frames of what `recv` returned.
        stream: the same connection for messages that nobody waits for, where it has a way.
        allocate: memory to write messages in, where those are sent best from memory of its own.
    """

    send: Callable[[Any], Awaitable[object]]
    recv: Callable[[], Awaitable[Any]]
    message: Callable[[Sequence[bytes]], Any]
    frames: Callable[[Any], Sequence[Buffer]]
    stream: Stream | None = None
    allocate: Callable[[int], Buffer] | None = None


Handler = Callable[[Link], Awaitable[None]]


class Side(Protocol):
    """A contestant."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Make the loop that both its ends run on."""

    async def listen(self, handler: Handler) -> str:
        """Call the handler for each connection from now on; return the address to dial."""

    async def connect(self, address: str) -> Link:
        """Dial; the link lives as long as the process."""


def side(name: str, options: dict[str, Any]) -> Side:
    """The contestant of this name, as its options say."""
    made: Side = importlib.import_module(SIDES[name]).make(**options)
    return made


def event_loop(name: str) -> asyncio.AbstractEventLoop:
    """A loop by its name: "asyncio", "uvloop" or ours, "forebay"."""
    if name == "forebay":
        from forebay.transport import new_event_loop

        return new_event_loop()
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()
