"""Ending connections whose peer stands still in the middle of something."""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from typing import Protocol

__all__ = ["Stallable", "Sweep", "sweep_of"]

LOOKS = 4
"""Looks within the shortest time that is allowed: a stall is found at most a quarter late."""
PERIOD_S_MIN = 0.01

_log = logging.getLogger(__name__)


class Stallable(Protocol):
    """What a `Sweep` looks at: a `MessageConnection`, or whatever stands for a connection."""

    @property
    def peer(self) -> str:
        """Who is at the other end, for a person."""

    def fileno(self) -> int:
        """The descriptor; -1 once it is closed."""

    def end_if_stalled(self, timeout_s: float, /) -> bool:
        """End it if it stood still for so many seconds; whether that was so."""


class Sweep:
    """Looks at the connections of one loop now and then; one timer for all of them.

    It runs while it has connections to look at, and drops those that were closed.

    Affinity: its loop, and that one's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak, all of it: the registry below would keep loop and connections for ever.
        self._loop = weakref.ref(loop)
        self._watched: weakref.WeakKeyDictionary[Stallable, float] = weakref.WeakKeyDictionary()
        self._timer: weakref.ref[asyncio.TimerHandle] | None = None
        self._period_s = math.inf

    def __len__(self) -> int:
        return len(self._watched)

    def watch(self, connection: Stallable, timeout_s: float | None) -> None:
        """Look at a connection from now on, unless it may stand still for as long as it likes."""
        if timeout_s is None or timeout_s == math.inf:
            return
        self._watched[connection] = timeout_s
        period_s = max(timeout_s / LOOKS, PERIOD_S_MIN)
        if period_s < self._period_s:
            self._period_s = period_s
            self._restart()

    def forget(self, connection: Stallable) -> None:
        """Look at it no more. No error if it was not looked at."""
        self._watched.pop(connection, None)
        if not self._watched:
            self._stop()

    def _restart(self) -> None:
        self._cancel()
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            self._timer = weakref.ref(loop.call_later(self._period_s, self._look))

    def _stop(self) -> None:
        self._cancel()
        self._period_s = math.inf

    def _cancel(self) -> None:
        timer = None if self._timer is None else self._timer()
        if timer is not None:
            timer.cancel()
        self._timer = None

    def _look(self) -> None:
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
        finally:  # also where a task that was told leaves the program's loop
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
