"""Keeping kinds ready: services that are started before a caller wants them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from forebay.errors import Error
from forebay.pool.lend.ahead import Pace

if TYPE_CHECKING:
    from forebay.pool.lend.kind import Kind
    from forebay.pool.lend.pool import ServicePool


class Refills:
    """Starts what is missing of a kind, and leaves it to settle by itself."""

    __slots__ = ("_filling", "_next", "_paces", "_pool")

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool
        self._filling = threading.Lock()
        self._paces: dict[int, Pace] = {}
        """By the key of the kind."""
        self._next: dict[int, float] = {}
        """When a kind that fails is started again."""

    def thrive(self, kind: Kind) -> None:
        """A service of the kind is lent: it can be started."""
        pace = self._paces.get(kind.key)
        if pace is not None:
            pace.thrive()
            self._next.pop(kind.key, None)

    def fill(self, kind: Kind) -> None:
        """Start what is missing. One thread does it at a time; a nested call returns at once."""
        if time.monotonic() < self._next.get(kind.key, 0.0):
            return
        if not self._filling.acquire(blocking=False):
            return
        pace = self._paces.setdefault(kind.key, Pace(self._pool.name, kind.name))
        try:
            core = self._pool.core
            while (handle := core.refill(kind.key)) is not None:
                self._pool.abandon(self._pool.start(kind, handle))
                pause = pace.pause(self._pool.config.max_size)
                if pause:
                    self._next[kind.key] = time.monotonic() + pause
                    return
        except (Error, OSError) as error:
            pace.failed(error)
        finally:
            self._filling.release()
