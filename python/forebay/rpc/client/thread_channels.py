"""The channels of a client that threads use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forebay import _forks
from forebay.errors import BrokenError
from forebay.rpc._target import Target
from forebay.rpc._unanswered import client_closed
from forebay.rpc.client.channel_set import ChannelSet, Entry, Verdict
from forebay.rpc.client.retry import Retry

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
        self._channels = ChannelSet(limit, polls=True)
        self._changed = threading.Condition()
        self._closing = threading.Event()
        _forks.watch(self)

    def _forget(self) -> object:
        """In a forked child: the thread that had the lock, or opened a channel, is not there."""
        parents = self._changed, self._closing
        self._changed, self._closing = threading.Condition(), threading.Event()
        if parents[1].is_set():
            self._closing.set()
        self._channels.forget_opening()
        return parents

    def take(self, retry: Retry) -> Entry:
        """An entry for one call, to be given back by `put`; waits while one is opened.

        Raises:
            BrokenError, ProtocolError, DeadlineError: as `connect`. ClosedError: by `close`.
        """
        with self._changed:
            self._check_open()
            while (chosen := self._channels.choose()) is Verdict.WAIT:
                self._changed.wait(retry.left())
                self._check_open()
            gone = self._channels.take_gone()
        for channel in gone:
            channel.close()
        return chosen if isinstance(chosen, Entry) else self._open(retry)

    def put(self, entry: Entry) -> None:
        """The call has ended."""
        with self._changed:
            self._channels.put(entry)
            gone = self._channels.take_gone()
        for channel in gone:
            channel.close()

    def pause(self, seconds: float) -> None:
        """Wait before another attempt; ends at once when it is closed."""
        self._closing.wait(seconds)

    def close(self) -> None:
        """Close every channel; calls in flight end with ClosedError. Idempotent."""
        self._closing.set()
        with self._changed:
            channels = self._channels.clear()
            self._changed.notify_all()
        for channel in channels:
            channel.close()

    def __len__(self) -> int:
        return len(self._channels)

    def _open(self, retry: Retry) -> Entry:
        try:
            channel = self._target.open(retry.left())
        except BaseException as error:
            with self._changed:
                entry = self._channels.give_up(error)
                self._changed.notify()  # another thread may try
            if entry is None:
                raise
            return entry
        with self._changed:
            entry = self._channels.add(channel)
            self._changed.notify_all()
        if self._closing.is_set():
            self.close()
            self._check_open()
        return entry

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise client_closed(self._target.url)


class Attempts:
    """Sends one call until a server starts it: `while True:` `with attempts as channel:`.

    Entering waits for a channel. Leaving by an error that says that the call did not start waits
    and swallows it, so that the loop goes on; any other way out goes through.

    Attributes:
        retry: when it is sent again, and for how long.
        begun: whether an item has come, so that it is not sent again.
    """

    __slots__ = ("_channels", "_entry", "begun", "retry")

    def __init__(self, channels: ThreadChannels, retry: Retry) -> None:
        self._channels = channels
        self._entry: Entry | None = None
        self.retry = retry
        self.begun = False

    def __enter__(self) -> Channel:
        while True:
            try:
                self._entry = self._channels.take(self.retry)
            except BrokenError as error:
                delay = self.retry.after(error)
                if delay is None:
                    raise
            else:
                return self._entry.channel
            self._channels.pause(delay)

    def __exit__(
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
        self._channels.pause(delay)
        return True
