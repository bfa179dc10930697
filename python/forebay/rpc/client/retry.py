"""When a call that did not start is sent again."""

from __future__ import annotations

import time
from collections.abc import Iterator

from forebay.errors import BrokenError, ProtocolError
from forebay.rpc._target import Target
from forebay.rpc._unanswered import no_reply

__all__ = ["Retry"]

_CHOOSING_S = 0.001


class Retry:
    """The attempts of one call, until a server starts it or its time is over.

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
            DeadlineError: no time remains.
        """
        if self._end is None:
            return None
        assert self._timeout is not None  # as the end
        left = self._end - time.monotonic()
        if left <= 0:
            raise no_reply(self._target.url, self._timeout)
        # Choosing a channel takes a moment, which must not change the number that errors name.
        return left if self._timeout - left > _CHOOSING_S else self._timeout

    def after(self, error: BaseException | None, *, begun: bool = False) -> float | None:
        """Decide about the next attempt after one has ended.

        Args:
            error: what the attempt raised.
            begun: whether an item has come of it.

        Returns:
            Seconds to wait before the next attempt, 0 before the first one; None: no next attempt,
            because it did not fail, may have begun, would fail again, or has no time left.
        """
        if begun or not isinstance(error, BrokenError) or isinstance(error, ProtocolError):
            return None
        if error.delivered != "no":
            return None
        if self._until is None:
            self._until = time.monotonic() + self._target.timeout
        if self._delays is None:
            # Here, because the transport's Python brings asyncio along.
            from forebay.transport import backoff

            self._delays = backoff(longest=2.0)
            return 0.0
        delay = next(self._delays)
        return delay if time.monotonic() + delay < self._until else None
