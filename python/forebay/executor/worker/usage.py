"""Reporting to the server what a worker has used of pool, tensor, blockio, arena and transport.

After a run, at most once a second, and once before it leaves, the figures that have changed are
sent as they are now: one that is lost is made good by the next. A worker that uses nothing sends
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forebay._usage import Key, used
from forebay.executor.worker.forks import is_forked
from forebay.executor.worker.pool import ACQUIRES

if TYPE_CHECKING:
    from forebay._core import Connection
    from forebay.executor.worker.side import Side

EVERY_S = 1.0
"""Seconds between two reports."""

BYTES = "forebay_transport_bytes_total"
Value = float | list[float]
"""A number, or those of a histogram."""


class UsageTeller:
    """The figures of this process less those of its connection to the server, which counts that.

    Made in the worker's own process: what was counted before, in its template, is left out.

    Attributes:
        due: when the next report may be sent, by `time.monotonic`.
        pending: a run has ended since the last report.
    """

    __slots__ = ("_before", "_connection", "_sent", "_side", "due", "pending")

    def __init__(self, side: Side, connection: Connection) -> None:
        self._side = side
        self._connection = connection
        self._before = self._counted()
        self._sent: dict[Key, Value] = {}
        self.due = 0.0
        self.pending = False

    def run_ended(self) -> None:
        """Note that a run has ended, and report if that is due."""
        self.pending = True
        if time.monotonic() >= self.due:
            self.tell()

    def tell_if_due(self) -> None:
        """Report what has been pending, if that is due."""
        if self.pending and time.monotonic() >= self.due:
            self.tell()

    def tell(self) -> None:
        """Send what has changed since the last report; what does not fit now is sent next time."""
        self.due = time.monotonic() + EVERY_S
        self.pending = False
        if is_forked():
            return  # a child that a request forked: its parent reports
        figures = self._figures()
        gone = dict.fromkeys(self._sent.keys() - figures.keys(), 0)
        changed = [
            (name, labels, value)
            for (name, labels), value in {**figures, **gone}.items()
            if self._sent.get((name, labels), 0) != value
        ]
        if changed and self._side.report(_encoded(changed)):
            self._sent = figures

    def _figures(self) -> dict[Key, Value]:
        figures: dict[Key, Value] = {
            key: max(0, value - self._before.get(key, 0)) for key, value in self._counted().items()
        }
        figures.update(ACQUIRES.figures())
        return {key: value for key, value in figures.items() if value}

    def _counted(self) -> Mapping[Key, float]:
        """The figures now; gauges and counters alike, as none is held from before the fork."""
        figures = dict(used())
        own = self._connection.counters()
        for direction, count in (("sent", "sent_bytes"), ("received", "received_bytes")):
            figures[BYTES, (direction,)] = figures.get((BYTES, (direction,)), 0) - own[count]
        return figures


def _encoded(figures: list[tuple[str, tuple[str, ...], Value]]) -> bytes:
    from forebay.executor.wire.codec import encoder

    return encoder().encode(figures)
