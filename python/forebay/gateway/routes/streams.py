"""The open streams of server-sent events: how many of whom, and their signs of life."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from forebay.gateway.http.exchange import GoneError
from forebay.gateway.http.limits import COMMENT_S, STREAMS_MAX
from forebay.gateway.problems import Problem

if TYPE_CHECKING:
    from forebay.gateway.access import Access, Headers
    from forebay.gateway.http.exchange import Exchange
    from forebay.gateway.tokens import Token

__all__ = ["EventStream", "Streams"]


class EventStream:
    """One answer of server-sent events.

    Attributes:
        token: of its reader.
        headers: of its request, which show what lets the reader in.
        idle_s: seconds since something was sent.
        has_begun: whether its head was sent.
    """

    def __init__(self, exchange: Exchange, token: Token) -> None:
        self.token = token
        self.headers: Headers = exchange.scope["headers"]
        self.idle_s = 0.0
        self._exchange = exchange
        self.has_begun = False

    async def begin(self) -> None:
        """Send the head, and a comment. Idempotent."""
        if self.has_begun:
            return
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # nginx would keep events for itself
        ]
        await self._exchange.begin(200, headers)
        self.has_begun = True
        await self.comment()

    async def send(self, event: str, data: bytes, id_: str | None = None) -> None:
        """Send an event; waits while the client does not read.

        Args:
            event: its kind.
            data: JSON, which has no line breaks.
            id_: what a client that comes back names.
        """
        self.idle_s = 0.0
        number = b"" if id_ is None else b"id: %b\n" % id_.encode()
        await self._exchange.piece(b"%bevent: %b\ndata: %b\n\n" % (number, event.encode(), data))

    async def end(self) -> None:
        """Say that nothing more comes, and end the answer."""
        await self.begin()
        await self.send("end", b"{}")
        await self._exchange.piece(b"", more=False)

    async def comment(self) -> None:
        """Send a sign of life, once it has begun; to a client that has left, nothing."""
        if self.has_begun:
            self.idle_s = 0.0
            with contextlib.suppress(GoneError):
                await self._exchange.piece(b":\n\n")


class Streams:
    """All of them.

    Loop affinity: the gateway's.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._of_token: Counter[str] = Counter()
        self._open: dict[asyncio.Task[Any], EventStream] = {}
        self._commenting: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(
        self, exchange: Exchange, stream: EventStream, work: Coroutine[Any, Any, None]
    ) -> None:
        """Send a stream until `work` ends, the client leaves, or its token or session ends.

        Raises:
            Problem: its token has too many.
        """
        name = stream.token.name
        if self._of_token[name] >= STREAMS_MAX:
            work.close()
            raise Problem(
                429,
                "limit",
                f"token {name} has {STREAMS_MAX} streams open",
                object="streams",
                limit=STREAMS_MAX,
                next="close one",
                headers=[(b"retry-after", b"5")],
            )
        self._of_token[name] += 1
        task = asyncio.ensure_future(work)
        self._open[task] = stream
        try:
            await exchange.unless_gone(_result_of(task))
        finally:
            del self._open[task]
            self._of_token[name] -= 1
            if not self._of_token[name]:
                del self._of_token[name]

    def tick(self, seconds: float) -> None:
        """So much time has passed: send signs of life, end those whose reader may not read."""
        for task, stream in list(self._open.items()):
            if not self._access.lasts(stream.headers, stream.token):
                task.cancel()
                continue
            stream.idle_s += seconds
            if stream.idle_s >= COMMENT_S:
                commenting = asyncio.ensure_future(stream.comment())
                self._commenting.add(commenting)
                commenting.add_done_callback(self._commenting.discard)

    def close(self) -> None:
        """End all of them."""
        for task in list(self._open):
            task.cancel()


async def _result_of(task: asyncio.Task[None]) -> None:
    """Wait for a task, and cancel it with the wait. One that was cancelled has ended its stream."""
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        with contextlib.suppress(asyncio.CancelledError, GoneError):
            task.result()  # a fault of its own is not lost
        raise
    if not task.cancelled():
        task.result()
