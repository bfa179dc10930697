"""Ending unauthenticated callers that stall within a frame."""

from __future__ import annotations

import time
from collections.abc import Callable

from forebay._core import STALL_BYTES_MIN, Connection

__all__ = ["StallCheck"]


class StallCheck:
    """What a `Sweep` checks of a caller over plain TCP.

    Only input counts, and only while nothing waits to be sent: a caller may take its answers when
    it likes. Over TLS a connection does not show whether it is within a frame, so nothing is found.

    Args:
        connection: not closed here.
        end: called once, with seconds, when it has stalled for that long.

    Affinity: the loop's thread.
    """

    def __init__(self, connection: Connection, end: Callable[[float], None]) -> None:
        self._connection = connection
        self._end = end
        self._since: float | None = None
        self._received_bytes = 0
        self.peer = connection.peer

    def fileno(self) -> int:
        """The descriptor; -1 once it is closed."""
        return -1 if self._connection.closed else self._connection.fileno()

    def end_if_stalled(self, timeout_s: float) -> bool:
        """End the connection if it has received too little within a frame for so many seconds."""
        connection, now = self._connection, time.monotonic()
        if connection.outbox_bytes or not connection.wants()[0] or connection.is_quiescent(0):
            self._since = None
            return False
        received_bytes = connection.counters()["received_bytes"]
        if self._since is None or received_bytes - self._received_bytes >= STALL_BYTES_MIN:
            self._since, self._received_bytes = now, received_bytes
            return False
        if now - self._since < timeout_s:
            return False
        self._end(timeout_s)
        return True
