"""The handshake with a shard, which may be about to start."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay._steps import Either, Steps
from forebay.errors import BrokenError, DeadlineError, Error
from forebay.tensor.client import verbs
from forebay.transport import backoff

if TYPE_CHECKING:
    from forebay.tensor.client.shards import Settings

__all__ = ["handshake"]

SETTING_UP = "while tensors were set up"
"""The note of an error before there was a connection to use."""

STARTING = {errno.ECONNREFUSED, errno.ENOENT}
"""Errors while a server has not started yet: no listener, no file of its socket."""

FIRST_S, LONGEST_S = 0.05, 0.5
"""Bounds of the first pause between two attempts, and of every one."""


def handshake(
    settings: Settings, shard: int, timeout: float | None, refuse: Callable[[], None]
) -> Steps[_core.TensorLink]:
    """Connect to a shard; while no server listens, try again until the time is over.

    Args:
        settings: of the client.
        shard: which one.
        timeout: seconds, if fewer than `connect_timeout`.
        refuse: raises if the client was closed meanwhile.
    """
    attempts = _Attempts(settings, shard, timeout)
    link: _core.TensorLink
    link = yield from _exchange(attempts, refuse, settings.hello(), settings.link)
    hello = verbs.offer(settings.config, settings.arena, link)
    if hello is not None:
        use = verbs.lifeline(settings.config, link)
        try:
            yield from _exchange(attempts, refuse, hello, use)
        except Error as error:
            verbs.give_up(settings.config, link, error)
        except BaseException:
            link.close()
            raise
    return link


def _exchange(
    attempts: _Attempts, refuse: Callable[[], None], hello: bytes, use: Callable[[Any, Any], Any]
) -> Steps[Any]:
    """Connect, say hello, and have the connection and its welcome used."""
    connection = yield from _connected(attempts, refuse)
    try:
        yield _InTime(attempts, connection.send, [hello])
        welcome = (yield _InTime(attempts, connection.recv))[0]
        return use(connection, welcome)
    except (BrokenError, DeadlineError) as error:
        raise _during_setup(error) from error.__cause__
    finally:
        connection.abort()  # the link has taken its stream over, or the handshake failed


def _connected(attempts: _Attempts, refuse: Callable[[], None]) -> Steps[Any]:
    while True:
        try:
            return (yield attempts.connect())
        except BrokenError as error:
            pause = attempts.pause(error)
        except DeadlineError as error:
            raise attempts.over(error) from error.__cause__
        yield Either(partial(time.sleep, pause), partial(asyncio.sleep, pause))
        refuse()


class _Attempts:
    """The time for connecting, and what is left of it."""

    def __init__(self, settings: Settings, shard: int, timeout: float | None) -> None:
        self._settings = settings
        self._shard = shard
        limit = settings.config.connect_timeout
        self.limit = limit if timeout is None else min(limit, timeout)
        self._end = time.monotonic() + self.limit
        self._pauses: Iterator[float] = backoff(FIRST_S, LONGEST_S)
        self._failed: BrokenError | None = None

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def connect(self) -> Either[Any]:
        """Connect once."""
        connect = self._settings.connect(self._shard, self.left)
        return Either(connect.open, lambda: connect)

    def late(self) -> DeadlineError:
        """The error of a server that is silent until no time is left."""
        said = f"{self._settings.urls[self._shard]} did not answer within {self.limit:.3g} s"
        return DeadlineError(said, timeout=self.limit)

    def pause(self, error: BrokenError) -> float:
        """Seconds until the next attempt after one that failed.

        Raises:
            BrokenError: the given one, if the server is not about to start; one that says for how
                long the client tried, if no time is left.
        """
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in STARTING:
            raise _during_setup(error) from cause
        self._failed = error
        left = self.left
        if left == 0:
            raise self.over(error) from cause
        return min(next(self._pauses), left)

    def over(self, error: BrokenError | DeadlineError) -> BrokenError | DeadlineError:
        """What to raise once no time is left: a missing listener says more than a timeout."""
        if self._failed is None:
            return _during_setup(error)
        tried = f"{self._failed}; tried for {self.limit:.3g} s"
        return _during_setup(BrokenError(tried, delivered="no"))


class _InTime:
    """A step of a connection in the time that is left, which a loop has to look after itself."""

    __slots__ = ("_args", "_attempts", "_method")

    def __init__(self, attempts: _Attempts, method: Callable[..., Any], *args: Any) -> None:
        self._attempts = attempts
        self._method = method
        self._args = args

    def block(self, _: None, /) -> Any:
        """Wait in this thread."""
        return self._method(*self._args, timeout=self._attempts.left)

    async def wait(self, _: None, /) -> Any:
        """Wait on the running loop."""
        try:
            async with asyncio.timeout(self._attempts.left):
                return await self._method(*self._args)
        except DeadlineError:
            raise  # it says itself what took too long
        except TimeoutError:
            raise self._attempts.late() from None


def _during_setup(error: BrokenError | DeadlineError) -> BrokenError | DeadlineError:
    """Mark an error of the handshake: no request was sent yet."""
    if isinstance(error, BrokenError):
        error.delivered = "no"
    error.add_note(SETTING_UP)
    return error
