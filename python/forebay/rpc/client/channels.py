"""What the channels of a client have in common, whether threads or the tasks of a loop use them.

`ThreadChannels` and `TaskChannels` add how a caller waits and how a channel is opened. Both are
part of every call, so they are no procedures of `forebay._steps`, which cost an echo 8 %.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from forebay.errors import BrokenError, DeadlineError
from forebay.rpc._channel import Channel
from forebay.rpc._target import Target
from forebay.rpc._unanswered import client_closed
from forebay.rpc.client.channel_set import ChannelSet, Entry
from forebay.rpc.client.retry import Retry

__all__ = ["BaseAttempts", "Channels"]


class Channels(ABC):
    """At most `limit` channels, opened when all others are busy.

    Args:
        target: where channels go.
        limit: channels at most.
        polls: as of `ChannelSet`.
        changed: what a caller holds while it looks at the set or changes it. It is not held while a
            channel is opened, used or closed.
    """

    def __init__(
        self, target: Target, limit: int, *, polls: bool, changed: AbstractContextManager[Any]
    ):
        self._target = target
        self._channels = ChannelSet(limit, polls=polls)
        self._changed = changed
        self._closed = False

    def put(self, entry: Entry) -> None:
        """The call has ended."""
        with self._changed:
            self._channels.put(entry)
            gone = self._channels.take_gone()
        for channel in gone:
            channel.close()

    def close(self) -> None:
        """Close every channel; calls in flight end with ClosedError. Idempotent."""
        self._closed = True
        with self._changed:
            channels = self._channels.clear()
            self._wake()
        for channel in channels:
            channel.close()

    def __len__(self) -> int:
        return len(self._channels)

    @abstractmethod
    def _wake(self) -> None:
        """Have every caller that waits choose again; under `_changed`."""

    def _opened(self, channel: Channel) -> Entry:
        """A channel was opened; its entry."""
        with self._changed:
            entry = self._channels.add(channel)
            self._wake()
        if self._closed:
            self.close()
            self._check_open()
        return entry

    def _not_opened(self, retry: Retry, error: BaseException) -> Entry:
        """No channel was opened; an entry of another channel, or raise the caller's error."""
        with self._changed:
            entry = self._channels.give_up(error)
            self._wake()  # another caller may try
        if entry is not None:
            return entry
        if isinstance(error, DeadlineError):
            raise retry.named(error, opening=True) from None
        raise error

    def _check_open(self) -> None:
        if self._closed:
            raise client_closed(self._target.url)


C = TypeVar("C", bound=Channels)


class BaseAttempts(Generic[C]):
    """What is decided before and after each attempt of one call.

    Args:
        channels: of which each attempt takes one.
        retry: when it is sent again, and for how long.

    Attributes:
        retry: the argument.
        begun: whether an item has come, so that it is not sent again.
    """

    __slots__ = ("_channels", "_entry", "begun", "retry")

    def __init__(self, channels: C, retry: Retry) -> None:
        self._channels = channels
        self._entry: Entry | None = None
        self.retry = retry
        self.begun = False

    def _delay(self, error: BrokenError) -> float:
        """No channel could be opened: seconds until the next attempt, or raise the error."""
        delay = self.retry.after(error)
        if delay is None:
            raise error
        return delay

    def _leave(self, error: BaseException | None) -> float | None:
        """An attempt has ended: seconds until the next one, or None if there is none.

        Raises:
            DeadlineError: in place of `error`, with the call's own timeout.
        """
        assert self._entry is not None
        self._channels.put(self._entry)
        if error is None:
            return None
        delay = self.retry.after(error, begun=self.begun)
        if delay is None and (named := self.retry.named(error)) is not error:
            raise named from None
        return delay
