"""The channels of a client that threads use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from forebay import _forks
from forebay.errors import BrokenError
from forebay.rpc._target import Target
from forebay.rpc.client.channel_set import Entry, Verdict
from forebay.rpc.client.channels import BaseAttempts, Channels
from forebay.rpc.client.retry import Retry

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["Attempts", "ThreadChannels"]


class ThreadChannels(Channels):
    """At most `limit` channels, opened when all others are busy; any thread may use them.

    The lock is not held while a channel is opened or used.
    """

    _changed: threading.Condition

    def __init__(self, target: Target, limit: int):
        super().__init__(target, limit, polls=True, changed=threading.Condition())
        self._closing = threading.Event()
        """Set with `_closed`, for threads that wait before another attempt."""
        _forks.watch(self)

    def _forget(self) -> object:
        """In a forked child: the thread that had the lock, or opened a channel, is not there."""
        parents = self._changed, self._closing
        self._changed, self._closing = threading.Condition(), threading.Event()
        if self._closed:
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

    def pause(self, seconds: float) -> None:
        """Wait before another attempt; ends at once when it is closed."""
        self._closing.wait(seconds)

    def close(self) -> None:
        """As `Channels.close`; ends every `pause` too."""
        self._closed = True
        self._closing.set()
        super().close()

    def _open(self, retry: Retry) -> Entry:
        try:
            channel = self._target.open(retry.left())
        except BaseException as error:
            return self._not_opened(retry, error)
        return self._opened(channel)

    def _wake(self) -> None:
        self._changed.notify_all()


class Attempts(BaseAttempts[ThreadChannels]):
    """Sends one call until a server starts it: `while True:` `with attempts as channel:`.

    Entering waits for a channel. Leaving by an error that says that the call did not start waits
    and swallows it, so that the loop goes on; any other way out goes through.
    """

    __slots__ = ()

    def __enter__(self) -> Channel:
        while True:
            try:
                self._entry = self._channels.take(self.retry)
            except BrokenError as error:
                delay = self._delay(error)
            else:
                return self._entry.channel
            self._channels.pause(delay)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        delay = self._leave(error)
        if delay is None:
            return False
        self._channels.pause(delay)
        return True
