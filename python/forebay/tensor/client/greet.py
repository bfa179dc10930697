"""Connecting to a shard, also one that is about to start."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from forebay import _core
from forebay.errors import BrokenError, DeadlineError, Error
from forebay.tensor.client import verbs
from forebay.transport import backoff

if TYPE_CHECKING:
    from forebay.tensor.client.shards import Settings

__all__ = ["greet", "greet_blocking"]

SETTING_UP = "while tensors were set up"
"""The note of an error before there was a connection to use."""

STARTING = {errno.ECONNREFUSED, errno.ENOENT}
"""What connecting says while a server is not there yet: no listener, no file of its socket."""

FIRST_S, LONGEST_S = 0.05, 0.5
"""Bounds of the first pause between two attempts, and of every one."""


def greet_blocking(
    settings: Settings, shard: int, timeout: float | None, refuse: Callable[[], None]
) -> _core.TensorLink:
    """A connection to a shard; where nobody listens, tried again until the time is over.

    Args:
        settings: of the client.
        shard: which one.
        timeout: seconds, if fewer than `connect_timeout`.
        refuse: raises where the client is closed meanwhile.
    """
    attempts = _Attempts(settings, timeout)
    ways = settings, shard, attempts, refuse
    link: _core.TensorLink = _meet_blocking(*ways, settings.hello(), settings.link)
    hello = verbs.offer(settings.config, settings.arena, link)
    if hello is not None:
        try:
            _meet_blocking(*ways, hello, verbs.lifeline(settings.config, link))
        except Error as error:
            verbs.give_up(settings.config, link, error)
        except BaseException:
            link.close()
            raise
    return link


def _meet_blocking(
    settings: Settings,
    shard: int,
    attempts: _Attempts,
    refuse: Callable[[], None],
    hello: bytes,
    use: Callable[[Any, Any], Any],
) -> Any:
    """Connect, say hello, and have the connection and its welcome used."""
    while True:
        try:
            connection = settings.connect(shard, attempts.left).open()
        except BrokenError as error:
            time.sleep(attempts.pause(error))
            refuse()
        except DeadlineError as error:
            raise attempts.over(error) from error.__cause__
        else:
            break
    try:
        connection.send([hello], timeout=attempts.left)
        welcome = connection.recv(timeout=attempts.left)[0]
        return use(connection, welcome)
    except (BrokenError, DeadlineError) as error:
        raise _unmet(error) from error.__cause__
    finally:
        connection.abort()  # its stream has gone over to the link, or is of no use


async def greet(
    settings: Settings, shard: int, timeout: float | None, refuse: Callable[[], None]
) -> _core.TensorLink:
    """The same in the running loop."""
    attempts = _Attempts(settings, timeout)
    ways = settings, shard, attempts, refuse
    link: _core.TensorLink = await _meet(*ways, settings.hello(), settings.link)
    hello = verbs.offer(settings.config, settings.arena, link)
    if hello is not None:
        try:
            await _meet(*ways, hello, verbs.lifeline(settings.config, link))
        except Error as error:
            verbs.give_up(settings.config, link, error)
        except BaseException:
            link.close()
            raise
    return link


async def _meet(
    settings: Settings,
    shard: int,
    attempts: _Attempts,
    refuse: Callable[[], None],
    hello: bytes,
    use: Callable[[Any, Any], Any],
) -> Any:
    connection: Any = None
    try:
        async with asyncio.timeout(attempts.left):
            while connection is None:
                try:
                    connection = await settings.connect(shard, attempts.left)
                except BrokenError as error:
                    await asyncio.sleep(attempts.pause(error))
                    refuse()
            await connection.send([hello])
            welcome = (await connection.recv())[0]
        return use(connection, welcome)
    except TimeoutError as error:
        late = error if isinstance(error, DeadlineError) else None
        if late is None:
            said = f"{settings.urls[shard]} did not answer within {attempts.limit:.3g} s"
            late = DeadlineError(said, timeout=attempts.limit)
        raise (_unmet(late) if connection is not None else attempts.over(late)) from None
    except BrokenError as error:
        raise _unmet(error) from error.__cause__
    finally:
        if connection is not None:
            connection.abort()  # its stream has gone over to the link, or is of no use


class _Attempts:
    """How long connecting may take, and what of it is left."""

    def __init__(self, settings: Settings, timeout: float | None) -> None:
        limit = settings.config.connect_timeout
        self.limit = limit if timeout is None else min(limit, timeout)
        self._end = time.monotonic() + self.limit
        self._pauses: Iterator[float] = backoff(FIRST_S, LONGEST_S)
        self._failed: BrokenError | None = None

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def pause(self, error: BrokenError) -> float:
        """Seconds until the next attempt after one that failed.

        Raises:
            BrokenError: the given one, if the server is not about to start; one that says for how
                long it was tried, if no time is left.
        """
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in STARTING:
            raise _unmet(error) from cause
        self._failed = error
        left = self.left
        if left == 0:
            raise self.over(error) from cause
        return min(next(self._pauses), left)

    def over(self, error: BrokenError | DeadlineError) -> BrokenError | DeadlineError:
        """What to raise once no time is left: that nobody listens says more than lateness."""
        if self._failed is None:
            return _unmet(error)
        tried = f"{self._failed}; tried for {self.limit:.3g} s"
        return _unmet(BrokenError(tried, delivered="no"))


def _unmet(error: BrokenError | DeadlineError) -> BrokenError | DeadlineError:
    """The error of a connection that nothing was asked over."""
    if isinstance(error, BrokenError):
        error.delivered = "no"
    error.add_note(SETTING_UP)
    return error
