"""What the gateway itself has answered, beside the metrics of its server."""

from __future__ import annotations

import bisect
from typing import Any, Final

__all__ = ["HttpMetrics"]

BOUNDS: Final = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 30.0)
"""Upper bounds in seconds: a submission takes a commit; a stream is counted when it ends."""

METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER: Final = "other"
"""In place of a method that clients have made up: the labels stay a bounded set."""


class HttpMetrics:
    """Counts answers by method and status, and how long they took.

    Loop affinity: the gateway's.

    Attributes:
        connections: how many are open; whoever accepts and closes them sets it.
    """

    __slots__ = ("_answers", "_counts", "_seconds", "connections")

    def __init__(self) -> None:
        self.connections = 0
        self._answers: dict[tuple[str, int], int] = {}
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def answered(self, method: str, status: int, seconds: float) -> None:
        """One request was answered.

        Args:
            method: as the client gave it.
            status: of the answer, 100 to 599.
            seconds: from its head to the end of its answer.
        """
        key = (method if method in METHODS else OTHER, status)
        self._answers[key] = self._answers.get(key, 0) + 1
        self._counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def figures(self) -> dict[str, list[Any]]:
        """Counters, gauges and histograms, in the form of the server's."""
        buckets, count = [], 0
        for bound, counted in zip(BOUNDS, self._counts, strict=False):
            count += counted
            buckets.append((bound, count))
        count += self._counts[-1]
        return {
            "counters": [
                ("forebay_gateway_requests_total", {"method": method, "status": str(status)}, it)
                for (method, status), it in self._answers.items()
            ],
            "gauges": [("forebay_gateway_connections", {}, self.connections)],
            "histograms": [("forebay_gateway_request_seconds", {}, buckets, self._seconds, count)],
        }
