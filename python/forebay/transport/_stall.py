"""Ending connections that stall in the middle of a message."""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from typing import Protocol

__all__ = ["Stallable", "Sweep", "sweep_of"]

CHECKS = 4
"""Checks within the shortest timeout: a stall is found at most a quarter late."""
PERIOD_S_MIN = 0.01

_log = logging.getLogger(__name__)


class Stallable(Protocol):
    """What a `Sweep` checks: a `MessageConnection`, or an object that checks another connection."""

    @property
    def peer(self) -> str:
        """The name of the other end, for messages."""

    def fileno(self) -> int:
        """The descriptor; -1 once it is closed."""

    def end_if_stalled(self, timeout_s: float, /) -> bool:
        """End it if it has stalled for so many seconds; whether that was so."""


class Sweep:
    """Checks the connections of one loop periodically, with one timer for all of them.

    It runs while it has connections to check, and drops those that were closed.

    Affinity: its loop, and that one's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak references: the registry below would keep loop and connections alive.
        self._loop = weakref.ref(loop)
        self._watched: weakref.WeakKeyDictionary[Stallable, float] = weakref.WeakKeyDictionary()
        self._timer: weakref.ref[asyncio.TimerHandle] | None = None
        self._period_s = math.inf

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, connection: Stallable, timeout_s: float | None) -> None:
        """Check a connection from now on, unless it may stall for as long as it likes."""
        if timeout_s is None or timeout_s == math.inf:
            return
        self._watched[connection] = timeout_s
        period_s = max(timeout_s / CHECKS, PERIOD_S_MIN)
        if period_s < self._period_s:
            self._period_s = period_s
            self._restart()

    def forget(self, connection: Stallable) -> None:
        """Stop checking a connection. No error if it was not checked."""
        self._watched.pop(connection, None)
        if not self._watched:
            self._stop()

    def _restart(self) -> None:
        self._cancel()
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            self._timer = weakref.ref(loop.call_later(self._period_s, self._check))

    def _stop(self) -> None:
        self._cancel()
        self._period_s = math.inf

    def _cancel(self) -> None:
        timer = None if self._timer is None else self._timer()
        if timer is not None:
            timer.cancel()
        self._timer = None

    def _check(self) -> None:
        self._timer = None
        try:
            for connection, timeout_s in list(self._watched.items()):
                if connection.fileno() < 0:
                    del self._watched[connection]
                elif connection.end_if_stalled(timeout_s):
                    del self._watched[connection]
                    _log.warning(
                        "%s sent no data for %g s in the middle of a frame",
                        connection.peer,
                        timeout_s,
                    )
        finally:  # also if a callback raises out of the loop, as SystemExit
            if self._watched:
                self._restart()
            else:
                self._stop()


_sweeps: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Sweep] = weakref.WeakKeyDictionary()


def sweep_of(loop: asyncio.AbstractEventLoop) -> Sweep:
    """The one of a loop, made at its first use."""
    sweep = _sweeps.get(loop)
    if sweep is None:
        sweep = _sweeps[loop] = Sweep(loop)
    return sweep
