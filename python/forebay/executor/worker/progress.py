"""Telling the server how far the requests of a worker are."""

from __future__ import annotations

from forebay.executor.worker.side import PROGRESS, Side


class ProgressTeller:
    """What both loops of a worker are to the contexts of their requests, in part.

    Args:
        side: where it is told; stays the caller's to close.
    """

    __slots__ = ("_side",)

    def __init__(self, side: Side) -> None:
        self._side = side

    def tell_progress(
        self, id: str, attempt: int, done: int, total: int | None, message: str, unit: str
    ) -> None:
        """Send it to the server; dropped where that does not keep up. Thread-safe."""
        from forebay.executor.wire.codec import encoder

        told = {"done": done, "total": total, "message": message, "unit": unit}
        self._side.send(PROGRESS, id, attempt, encoder().encode(told), wait=False)
