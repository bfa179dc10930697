"""The channels of a client that threads use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forebay import _forks
from forebay.errors import BrokenError
from forebay.rpc._connect import Target
from forebay.rpc._lot import Lot, Place, Verdict
from forebay.rpc._patience import Patience
from forebay.rpc._unanswered import client_closed

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["Attempts", "ThreadChannels"]


class ThreadChannels:
    """At most `limit` channels, opened when all others are busy; any thread may use them.

    The lock is not held while a channel is opened or used.
    """

    def __init__(self, target: Target, limit: int):
        self._target = target
        self._lot = Lot(limit, looks=True)
        self._changed = threading.Condition()
        self._closing = threading.Event()
        _forks.watch(self)

    def _forget(self) -> object:
        """In a forked child: who has the lock, or was opening a channel, is not there."""
        parents = self._changed, self._closing
        self._changed, self._closing = threading.Condition(), threading.Event()
        if parents[1].is_set():
            self._closing.set()
        self._lot.forget_opening()
        return parents

    def take(self, patience: Patience) -> Place:
        """A place for one call, to be given back by `put`; waits while one is opened.

        Raises:
            BrokenError, ProtocolError, DeadlineError: as `connect`. ClosedError: by `close`.
        """
        with self._changed:
            self._check_open()
            while (chosen := self._lot.choose()) is Verdict.WAIT:
                self._changed.wait(patience.left())
                self._check_open()
            gone = self._lot.take_gone()
        for channel in gone:
            channel.close()
        return chosen if isinstance(chosen, Place) else self._open(patience)

    def put(self, place: Place) -> None:
        """The call has ended."""
        with self._changed:
            self._lot.put(place)
            gone = self._lot.take_gone()
        for channel in gone:
            channel.close()

    def pause(self, seconds: float) -> None:
        """Wait before another attempt; ends at once when it is closed."""
        self._closing.wait(seconds)

    def close(self) -> None:
        """Close every channel; calls in flight end with ClosedError. Idempotent."""
        self._closing.set()
        with self._changed:
            channels = self._lot.clear()
            self._changed.notify_all()
        for channel in channels:
            channel.close()

    def __len__(self) -> int:
        return len(self._lot)

    def _open(self, patience: Patience) -> Place:
        try:
            channel = self._target.open(patience.left())
        except BaseException as error:
            with self._changed:
                place = self._lot.give_up(error)
                self._changed.notify()  # another one may try
            if place is None:
                raise
            return place
        with self._changed:
            place = self._lot.add(channel)
            self._changed.notify_all()
        if self._closing.is_set():
            self.close()
            self._check_open()
        return place

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise client_closed(self._target.url)


class Attempts:
    """Sends one call until a server starts it: `while True:` `with attempts as channel:`.

    Entering waits for a channel. Leaving by an error that says that the call did not start waits
    and swallows it, so that the loop goes on; any other way out goes through.

    Attributes:
        patience: how long it goes on.
        begun: whether something has come of it, so that it is not sent again.
    """

    __slots__ = ("_channels", "_place", "begun", "patience")

    def __init__(self, channels: ThreadChannels, patience: Patience) -> None:
        self._channels = channels
        self._place: Place | None = None
        self.patience = patience
        self.begun = False

    def __enter__(self) -> Channel:
        while True:
            try:
                self._place = self._channels.take(self.patience)
            except BrokenError as error:
                delay = self.patience.after(error)
                if delay is None:
                    raise
            else:
                return self._place.channel
            self._channels.pause(delay)

    def __exit__(
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
        self._channels.pause(delay)
        return True
