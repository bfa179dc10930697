"""When a call that did not start is sent again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from forebay.errors import BrokenError, DeadlineError, ProtocolError
from forebay.rpc._target import Target
from forebay.rpc._unanswered import no_reply

__all__ = ["Retry"]

E = TypeVar("E", bound=BaseException | None)


class Retry:
    """The attempts of one call, until a server starts it or its time is over.

    Args:
        target: whose time for connecting counts where the call has none.
        timeout: of the call, in seconds.
        late: makes the error of a call that got an attempt and ran out of time in it.
    """

    __slots__ = ("_delays", "_end", "_late", "_left", "_target", "_timeout", "_until")

    def __init__(
        self,
        target: Target,
        timeout: float | None,
        late: Callable[[str, float], DeadlineError] = no_reply,
    ):
        self._target = target
        self._timeout = timeout
        self._late = late
        self._left = timeout
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
            raise self._late(self._target.url, self._timeout)
        self._left = left
        return left

    def named(self, error: E, *, opening: bool = False) -> E | DeadlineError:
        """The error for the caller, which knows the call's own timeout alone.

        An attempt gets what `left` returned, so it names that number when its time is over.

        Args:
            error: what the attempt raised.
            opening: whether it was raised while a channel was opened.
        """
        if not isinstance(error, DeadlineError) or self._timeout is None:
            return error
        if error.timeout != self._left:
            return error  # of another deadline: of connecting, or of the caller's own code
        if opening:
            return self._target.late(self._timeout)
        return self._late(self._target.url, self._timeout)

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
