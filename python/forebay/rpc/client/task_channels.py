"""The channels of a client that the tasks of one event loop use."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

from forebay.errors import BrokenError
from forebay.rpc._target import Target
from forebay.rpc.client.channel_set import Entry, Verdict
from forebay.rpc.client.channels import BaseAttempts, Channels
from forebay.rpc.client.retry import Retry

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._async_channel import AsyncChannel

__all__ = ["TaskAttempts", "TaskChannels"]


class TaskChannels(Channels):
    """As `ThreadChannels`, for one loop, in its thread alone; `close` once the loop is closed: any.

    Attributes:
        loop: the loop.
    """

    def __init__(self, target: Target, limit: int, loop: asyncio.AbstractEventLoop):
        # The loop reads the sockets, and one thread needs no lock.
        super().__init__(target, limit, polls=False, changed=nullcontext())
        self._waiting: list[asyncio.Future[None]] = []
        self.loop = loop

    async def take(self, retry: Retry) -> Entry:
        """An entry for one call, to be given back by `put`; errors as of `ThreadChannels.take`.

        Cancellation: safe; another task goes on with opening.
        """
        while True:
            self._check_open()
            chosen = self._channels.choose()
            for channel in self._channels.take_gone():
                channel.close()
            if isinstance(chosen, Entry):
                return chosen
            if chosen is Verdict.OPEN:
                return await self._open(retry)
            waiter = self.loop.create_future()
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(retry.left()):
                    await waiter
            except TimeoutError:
                retry.left()  # raises

    async def _open(self, retry: Retry) -> Entry:
        try:
            channel = await self._target.open_on_loop(retry.left())
        except BaseException as error:
            return self._not_opened(retry, error)
        return self._opened(channel)

    def _wake(self) -> None:
        if self.loop.is_closed():
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class TaskAttempts(BaseAttempts[TaskChannels]):
    """As `Attempts`, by `async with`."""

    __slots__ = ()

    async def __aenter__(self) -> AsyncChannel:
        while True:
            try:
                self._entry = await self._channels.take(self.retry)
            except BrokenError as error:
                delay = self._delay(error)
            else:
                return self._entry.channel.on_loop
            await asyncio.sleep(delay)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        delay = self._leave(error)
        if delay is None:
            return False
        await asyncio.sleep(delay)
        return True
