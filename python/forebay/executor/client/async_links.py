"""The calls of an event loop on the connection of a client, sent again where that is safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, ClosedError, ProtocolError
from forebay.executor.wire.frames import Message, value_of

if TYPE_CHECKING:
    from forebay.executor.client.links import Links
    from forebay.executor.wire.frames import Answers

__all__ = ["AsyncLinks"]


class AsyncLinks:
    """One connection at a time to the server of an application, for the tasks of a loop.

    Connecting, which may mean starting a server, happens in a thread.

    Loop affinity: the loop of the first call; any number of its tasks may use it.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._connecting = asyncio.Lock()

    async def send(
        self,
        frame: Message,
        until: float | None,
        *,
        repeatable: bool,
        application: str | None = None,
    ) -> list[Any]:
        """Send a call until a server answers it; the values of the answer.

        Args:
            frame: the call.
            until: on the monotonic clock, when it is given up; None: never.
            repeatable: whether it may be sent again where a server may have had it.
            application: whose server it is, where nothing else says that.

        Raises:
            the error that a refusal stands for. BrokenError: no server is there, or it went away
            before it answered. DeadlineError: `until` has come. ClosedError.

        Cancellation: the server may have it nevertheless.
        """
        channel = await self.channel(application, until)
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                answer = await channel.call_frame(frame, left)
            except ProtocolError:
                raise
            except ClosedError:
                if self._links.closed:
                    raise
                channel = await self.channel(until=until)  # it was replaced before this was sent
            except BrokenError as error:
                if not channel.is_spent or not (repeatable or error.delivered == "no"):
                    raise
                channel = await self.again(channel, until)
            else:
                return value_of(answer, channel.name)

    async def channel(self, application: str | None = None, until: float | None = None) -> Answers:
        """The connection, opened where there is none; arguments and errors as of `Links.get`."""
        if self._links.current is not None:
            return self._links.current
        end = self._links.end(until)
        async with self._alone(end):
            return await asyncio.to_thread(self._links.get, application, end)

    async def again(self, broken: Answers, until: float | None = None) -> Answers:
        """Another connection than the one that broke; errors as of `Links.again`."""
        # Here, because its callbacks are this loop's. One on which the server still answers what it
        # has read ends with the server's end of it.
        if broken.broken or not broken.in_flight:
            broken.close()
        end = self._links.end(until)
        async with self._alone(end):
            return await asyncio.to_thread(self._links.again, broken, end)

    @asynccontextmanager
    async def _alone(self, end: float) -> AsyncIterator[None]:
        """One task at a time tries to reach the server: a thread is enough for all of them."""
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                await self._connecting.acquire()
        except TimeoutError:
            raise self._links.gone() from None
        try:
            yield
        finally:
            self._connecting.release()
