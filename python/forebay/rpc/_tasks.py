"""The channels of a client that the tasks of one event loop use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.errors import BrokenError
from forebay.rpc._connect import Target
from forebay.rpc._lot import Lot, Place, Verdict
from forebay.rpc._patience import Patience
from forebay.rpc._unanswered import client_closed

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["TaskAttempts", "TaskChannels"]


class TaskChannels:
    """As `ThreadChannels`, for one loop, in its thread alone."""

    def __init__(self, target: Target, limit: int, loop: asyncio.AbstractEventLoop):
        self._target = target
        self._lot = Lot(limit, looks=False)  # the loop reads their sockets
        self._waiting: list[asyncio.Future[None]] = []
        self._closed = False
        self.loop = loop

    async def take(self, patience: Patience) -> Place:
        """A place for one call, to be given back by `put`; errors as of `ThreadChannels.take`.

        Cancellation: safe; another task goes on with opening.
        """
        while True:
            self._check_open()
            chosen = self._lot.choose()
            self._close_gone()
            if isinstance(chosen, Place):
                return chosen
            if chosen is Verdict.OPEN:
                return await self._open(patience)
            waiter = self.loop.create_future()
            self._waiting.append(waiter)
            try:
                async with asyncio.timeout(patience.left()):
                    await waiter
            except TimeoutError:
                patience.left()  # raises

    def put(self, place: Place) -> None:
        """The call has ended."""
        self._lot.put(place)
        self._close_gone()

    def close(self) -> None:
        """As `ThreadChannels.close`; in any thread once the loop is closed."""
        self._closed = True
        for channel in self._lot.clear():
            channel.close()
        if not self.loop.is_closed():
            self._wake()

    def __len__(self) -> int:
        return len(self._lot)

    async def _open(self, patience: Patience) -> Place:
        try:
            channel = await self._target.aopen(patience.left())
        except BaseException as error:
            place = self._lot.give_up(error)
            self._wake()
            if place is None:
                raise
            return place
        place = self._lot.add(channel)
        self._wake()
        if self._closed:
            self.close()
            self._check_open()
        return place

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _close_gone(self) -> None:
        for channel in self._lot.take_gone():
            channel.close()

    def _check_open(self) -> None:
        if self._closed:
            raise client_closed(self._target.url)


class TaskAttempts:
    """As `Attempts`, by `async with`."""

    __slots__ = ("_channels", "_place", "begun", "patience")

    def __init__(self, channels: TaskChannels, patience: Patience) -> None:
        self._channels = channels
        self._place: Place | None = None
        self.patience = patience
        self.begun = False

    async def __aenter__(self) -> Channel:
        while True:
            try:
                self._place = await self._channels.take(self.patience)
            except BrokenError as error:
                delay = self.patience.after(error)
                if delay is None:
                    raise
            else:
                return self._place.channel
            await asyncio.sleep(delay)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        assert self._place is not None
        self._channels.put(self._place)
        delay = self.patience.after(error, begun=self.begun)
        if delay is None:
            return False
        await asyncio.sleep(delay)
        return True
