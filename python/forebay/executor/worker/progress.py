"""Reporting to the server how far the requests of a worker are."""

from __future__ import annotations

from forebay.executor.worker.side import PROGRESS, Side


class ProgressTeller:
    """The part that both loops of a worker share of what a `Context` calls.

    Args:
        side: the side socket for reports; the caller closes it.
    """

    __slots__ = ("_side",)

    def __init__(self, side: Side) -> None:
        self._side = side

    def tell_progress(
        self, id: str, attempt: int, done: int, total: int | None, message: str, unit: str
    ) -> None:
        """Send it to the server; dropped if the server reads too slowly. Thread-safe."""
        from forebay.executor.wire.codec import encoder

        told = {"done": done, "total": total, "message": message, "unit": unit}
        self._side.send(PROGRESS, id, attempt, encoder().encode(told), wait=False)
