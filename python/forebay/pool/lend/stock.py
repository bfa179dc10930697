"""Keeping kinds ready: services that are started before a caller wants them."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from forebay.errors import Error

if TYPE_CHECKING:
    from forebay.pool.lend.kind import Kind
    from forebay.pool.lend.pool import ServicePool

PATIENCE = 8
"""Starts ahead without a lease between them, after which a kind counts as failing."""

PAUSE_MAX_S = 30.0
"""Longest time between two starts ahead of a kind that fails."""

_log = logging.getLogger(__name__)


class Stocks:
    """Starts what is missing of a kind, and leaves it to settle by itself.

    If the services of a kind end before a caller uses them, it is started ahead less and less
    often, and one warning says so. The next lease of the kind ends that.
    """

    __slots__ = ("_filling", "_next", "_pool", "_started")

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool
        self._filling = threading.Lock()
        self._started: dict[int, int] = {}
        """Starts ahead since the last lease, by the key of the kind."""
        self._next: dict[int, float] = {}

    def thrive(self, kind: Kind) -> None:
        """A service of the kind is lent: it can be started."""
        if self._started.get(kind.key):
            self._started[kind.key] = 0
            self._next.pop(kind.key, None)

    def fill(self, kind: Kind) -> None:
        """Start what is missing. One thread does it at a time; a nested call returns at once."""
        if time.monotonic() < self._next.get(kind.key, 0.0):
            return
        if not self._filling.acquire(blocking=False):
            return
        try:
            core = self._pool.core
            while (handle := core.refill(kind.key)) is not None:
                self._pool.abandon(self._pool.start(kind, handle))
                if self._is_failing(kind):
                    return
        except (Error, OSError) as error:
            # A caller that acquires one gets the error; nobody waits for this start.
            _log.warning("pool %r: %s cannot be kept ready: %s", self._pool.name, kind.name, error)
        finally:
            self._filling.release()

    def _is_failing(self, kind: Kind) -> bool:
        started = self._started[kind.key] = self._started.get(kind.key, 0) + 1
        excess = started - PATIENCE - self._pool.config.max_size
        if excess <= 0:
            return False
        self._next[kind.key] = time.monotonic() + min(PAUSE_MAX_S, 0.1 * 2.0 ** min(excess, 10))
        if excess == 1:
            _log.warning(
                "pool %r: %d services of %s were started ahead since one was last lent; they are"
                " started more seldom now. Acquire one to see why they end",
                self._pool.name,
                started,
                kind.name,
            )
        return True
