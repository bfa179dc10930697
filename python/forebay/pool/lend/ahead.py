"""How often a kind is started before a caller wants it."""

from __future__ import annotations

import logging

PATIENCE = 8
"""Starts ahead without a lease between them, after which a kind counts as failing."""

PAUSE_MAX_S = 30.0
"""Longest time between two starts ahead of a kind that fails."""

_log = logging.getLogger(__name__)


class Pace:
    """The pace of starting one kind ahead.

    If its services end before a caller uses them, it is started less and less often, and one
    warning says so. The next lease ends that.
    """

    __slots__ = ("_name", "_pool", "_started")

    def __init__(self, pool: str, name: str) -> None:
        self._pool = pool
        self._name = name
        self._started = 0
        """Starts ahead since the last lease."""

    def thrive(self) -> None:
        """A service is lent: it can be started."""
        self._started = 0

    def pause(self, maximum: int) -> float:
        """Note a start; seconds until the next one, 0 for none.

        Args:
            maximum: so many may be started without a lease, beyond a few.
        """
        self._started += 1
        excess = self._started - PATIENCE - maximum
        if excess <= 0:
            return 0.0
        if excess == 1:
            _log.warning(
                "pool %r: %d services of %s were started ahead since one was last lent; they are"
                " started more seldom now. Acquire one to see why they end",
                self._pool,
                self._started,
                self._name,
            )
        return min(PAUSE_MAX_S, 0.1 * 2.0 ** min(excess, 10))

    def failed(self, error: Exception) -> None:
        """Report a start that failed; nobody waits for it."""
        # A caller that acquires one gets the error.
        _log.warning("pool %r: %s cannot be kept ready: %s", self._pool, self._name, str(error))
