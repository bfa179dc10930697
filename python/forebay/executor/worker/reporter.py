"""What a context asks of its worker, as far as both loops of a worker share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import BrokenError
from forebay.executor.worker.side import PROGRESS, Side

if TYPE_CHECKING:
    from forebay.executor.worker.children import ParentClients


class RunReporter:
    """Reports to the server how far runs are, and has the clients that submit their children.

    Args:
        side: the side socket for reports; the caller closes it.
        clients: path of the server's socket for clients; None: there is none.
    """

    __slots__ = ("_clients", "_parents", "_side")

    def __init__(self, side: Side, clients: str | None = None) -> None:
        self._side = side
        self._clients = clients
        self._parents: ParentClients | None = None

    def tell_progress(
        self, id: str, attempt: int, done: int, total: int | None, message: str, unit: str
    ) -> None:
        """Send it to the server; dropped if the server reads too slowly. Thread-safe."""
        from forebay.executor.wire.codec import encoder

        told = {"done": done, "total": total, "message": message, "unit": unit}
        self._side.send(PROGRESS, id, attempt, encoder().encode(told), wait=False)

    def parents(self) -> ParentClients:
        """The clients of this worker's runs, made on first use."""
        if self._parents is None:
            if self._clients is None:
                raise BrokenError("this worker's server takes no clients", delivered="no")
            from forebay.executor.worker.children import ParentClients

            self._parents = ParentClients(self._clients)
        return self._parents
