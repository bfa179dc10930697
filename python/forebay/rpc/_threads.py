"""The channels of a client that threads use."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.errors import BrokenError, ClosedError, DeadlineError, ProtocolError
from forebay.rpc._connect import Target
from forebay.rpc._late import no_reply
from forebay.rpc._lot import Lot, Place, Verdict

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._channel import Channel

__all__ = ["Attempts", "Patience", "ThreadChannels"]

_CHOOSING_S = 0.001


class Patience:
    """How long one call may look for a server that takes it.

    Args:
        target: whose time for connecting counts where the call has none.
        timeout: of the call, in seconds.
    """

    __slots__ = ("_delays", "_end", "_target", "_timeout", "_until")

    def __init__(self, target: Target, timeout: float | None):
        self._target = target
        self._timeout = timeout
        self._end = None if timeout is None else time.monotonic() + timeout
        self._until = self._end
        self._delays: Iterator[float] | None = None

    def left(self) -> float | None:
        """Seconds that remain of the call's own time.

        Raises:
            DeadlineError: there are none.
        """
        if self._end is None:
            return None
        assert self._timeout is not None  # as the end
        left = self._end - time.monotonic()
        if left <= 0:
            raise no_reply(self._target.url, self._timeout)
        # What choosing took does not change the number that errors name.
        return left if self._timeout - left > _CHOOSING_S else self._timeout

    def delay(self, error: BrokenError) -> float:
        """Seconds to wait before the next attempt; 0 before the first one.

        Raises:
            `error`, where trying again helps nobody, or with no time left.
        """
        if error.delivered != "no" or isinstance(error, ProtocolError):
            raise error
        if self._until is None:
            self._until = time.monotonic() + self._target.timeout
        if self._delays is None:
            # Here, because the transport's Python brings asyncio along.
            from forebay.transport._backoff import backoff

            self._delays = backoff(longest=2.0)
            return 0.0
        delay = next(self._delays)
        if time.monotonic() + delay >= self._until:
            raise error
        return delay


class ThreadChannels:
    """At most `limit` channels, opened when all others are busy; any thread may use them.

    The lock is not held while a channel is opened or used.
    """

    def __init__(self, target: Target, limit: int):
        self._target = target
        self._lot = Lot(limit, looks=True)
        self._changed = threading.Condition()
        self._closing = threading.Event()

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
                self._lot.give_up()
                falls_back = isinstance(error, BrokenError | DeadlineError)
                place = self._lot.share() if falls_back else None
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
            raise ClosedError(
                f"the client of {self._target.url} is closed; make a new rpc.Client to call it"
            )


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
                delay = self.patience.delay(error)
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
        if self.begun or not isinstance(error, BrokenError):
            return False
        try:
            delay = self.patience.delay(error)
        except BrokenError:
            return False
        self._channels.pause(delay)
        return True
