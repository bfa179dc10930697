"""The handshake with a shard, which may be about to start."""

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

__all__ = ["handshake", "handshake_blocking"]

SETTING_UP = "while tensors were set up"
"""The note of an error before there was a connection to use."""

STARTING = {errno.ECONNREFUSED, errno.ENOENT}
"""Errors while a server has not started yet: no listener, no file of its socket."""

FIRST_S, LONGEST_S = 0.05, 0.5
"""Bounds of the first pause between two attempts, and of every one."""


def handshake_blocking(
    settings: Settings, shard: int, timeout: float | None, refuse: Callable[[], None]
) -> _core.TensorLink:
    """Connect to a shard; while no server listens, try again until the time is over.

    Args:
        settings: of the client.
        shard: which one.
        timeout: seconds, if fewer than `connect_timeout`.
        refuse: raises if the client was closed meanwhile.
    """
    attempts = _Attempts(settings, timeout)
    ways = settings, shard, attempts, refuse
    link: _core.TensorLink = _exchange_blocking(*ways, settings.hello(), settings.link)
    hello = verbs.offer(settings.config, settings.arena, link)
    if hello is not None:
        try:
            _exchange_blocking(*ways, hello, verbs.lifeline(settings.config, link))
        except Error as error:
            verbs.give_up(settings.config, link, error)
        except BaseException:
            link.close()
            raise
    return link


def _exchange_blocking(
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
        raise _during_setup(error) from error.__cause__
    finally:
        connection.abort()  # the link has taken its stream over, or the handshake failed


async def handshake(
    settings: Settings, shard: int, timeout: float | None, refuse: Callable[[], None]
) -> _core.TensorLink:
    """As `handshake_blocking`, on the running loop."""
    attempts = _Attempts(settings, timeout)
    ways = settings, shard, attempts, refuse
    link: _core.TensorLink = await _exchange(*ways, settings.hello(), settings.link)
    hello = verbs.offer(settings.config, settings.arena, link)
    if hello is not None:
        try:
            await _exchange(*ways, hello, verbs.lifeline(settings.config, link))
        except Error as error:
            verbs.give_up(settings.config, link, error)
        except BaseException:
            link.close()
            raise
    return link


async def _exchange(
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
        raise (_during_setup(late) if connection is not None else attempts.over(late)) from None
    except BrokenError as error:
        raise _during_setup(error) from error.__cause__
    finally:
        if connection is not None:
            connection.abort()  # the link has taken its stream over, or the handshake failed


class _Attempts:
    """The time for connecting, and what is left of it."""

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


def _during_setup(error: BrokenError | DeadlineError) -> BrokenError | DeadlineError:
    """Mark an error of the handshake: no request was sent yet."""
    if isinstance(error, BrokenError):
        error.delivered = "no"
    error.add_note(SETTING_UP)
    return error
