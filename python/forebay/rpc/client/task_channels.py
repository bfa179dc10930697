"""The channels of a client that the tasks of one event loop use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.errors import BrokenError
from forebay.rpc._target import Target
from forebay.rpc._unanswered import client_closed
from forebay.rpc.client.channel_set import ChannelSet, Entry, Verdict
from forebay.rpc.client.retry import Retry

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._async_channel import AsyncChannel

__all__ = ["TaskAttempts", "TaskChannels"]


class TaskChannels:
    """As `ThreadChannels`, for one loop, in its thread alone."""

    def __init__(self, target: Target, limit: int, loop: asyncio.AbstractEventLoop):
        self._target = target
        self._channels = ChannelSet(limit, polls=False)  # the loop reads their sockets
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        self.loop = loop

    async def take(self, retry: Retry) -> Entry:
        """An entry for one call, to be given back by `put`; errors as of `ThreadChannels.take`.

        Cancellation: safe; another task goes on with opening.
        """
        while True:
            self._check_open()
            chosen = self._channels.choose()
            self._close_gone()
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

    def put(self, entry: Entry) -> None:
        """The call has ended."""
        self._channels.put(entry)
        self._close_gone()

    def close(self) -> None:
        """As `ThreadChannels.close`; in any thread once the loop is closed."""
        self._closed = True
        for channel in self._channels.clear():
            channel.close()
        if not self.loop.is_closed():
            self._wake()

    def __len__(self) -> int:
        return len(self._channels)

    async def _open(self, retry: Retry) -> Entry:
        try:
            channel = await self._target.open_on_loop(retry.left())
        except BaseException as error:
            entry = self._channels.give_up(error)
            self._wake()
            if entry is None:
                raise
            return entry
        entry = self._channels.add(channel)
        self._wake()
        if self._closed:
            self.close()
            self._check_open()
        return entry

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _close_gone(self) -> None:
        for channel in self._channels.take_gone():
            channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise client_closed(self._target.url)


class TaskAttempts:
    """As `Attempts`, by `async with`."""

    __slots__ = ("_channels", "_entry", "begun", "retry")

    def __init__(self, channels: TaskChannels, retry: Retry) -> None:
        self._channels = channels
        self._entry: Entry | None = None
        self.retry = retry
        self.begun = False

    async def __aenter__(self) -> AsyncChannel:
        while True:
            try:
                self._entry = await self._channels.take(self.retry)
            except BrokenError as error:
                delay = self.retry.after(error)
                if delay is None:
                    raise
            else:
                return self._entry.channel.on_loop
            await asyncio.sleep(delay)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        assert self._entry is not None
        self._channels.put(self._entry)
        delay = self.retry.after(error, begun=self.begun)
        if delay is None:
            return False
        await asyncio.sleep(delay)
        return True
