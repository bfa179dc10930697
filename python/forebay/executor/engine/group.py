"""The workers of one version of an application on nodes, as the supervisor sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay.errors import ConfigError, DiedError, RemoteError
from forebay.executor.engine.order import Order, Place
from forebay.executor.engine.stand_in import NODE_LOST, told_death
from forebay.executor.server.worker_group import Death, Worker, WorkerGroup

if TYPE_CHECKING:
    from forebay.pool import Spec

__all__ = ["NodeGroup"]


class NodeGroup(WorkerGroup):
    """A group of stand-ins, each of which finds a node before it is deployed.

    Args:
        spec: of a stand-in.
        order: what a node is to start, without the code, which the first import tells.
        place: where stand-ins wait for nodes now.
        start_timeout: seconds that the import may take, here and on a node.
    """

    def __init__(
        self, spec: Spec[Any], order: Order, place: Callable[[], Place], *, start_timeout: float
    ) -> None:
        super().__init__(spec, start_timeout=start_timeout, name="workers")
        self._order = order
        self._place = place
        self._engaging: dict[Worker, int] = {}
        self._refused: dict[Worker, str] = {}
        self._here: set[Worker] = set()
        """Those whose node is this machine."""

    def know_code(self, code: str) -> None:
        """Nodes have to have this code from now on."""
        self._order = replace(self._order, code=code)

    @property
    def can_place(self) -> bool:
        """Whether the code is known, which nodes have to have."""
        return bool(self._order.code)

    def place(self, worker: Worker) -> bool:
        """Whether a node has its worker ready. Never waits.

        Raises:
            RemoteError, BrokenError: there will be none; ask `start_error`.
        """
        if not self.can_place:
            return False  # the first import tells the code presently
        call = self._engaging.get(worker)
        if call is None:
            args = (self._order.told(), self._place())
            self._engaging[worker] = self.ask(worker, "engage", args)
            return False
        try:
            pid = self.answer(worker, call)
        except BlockingIOError:
            return False
        except RemoteError as error:
            self._refused[worker] = str(error.__cause__ or error)
            raise
        if pid:
            worker.pid = pid
            self._here.add(worker)
        return True

    def is_measured(self, worker: Worker) -> bool:
        """Whether the memory of its runs is that of its process; elsewhere that is the stand-in."""
        return worker in self._here

    @property
    def owns_workers(self) -> bool:
        """Never: its processes are stand-ins, and each node tells why its workers ended."""
        return False

    def start_error(self, worker: Worker) -> DiedError | ConfigError | None:
        """Why a worker never became ready; None while the keeper may still report."""
        refused = self._refused.get(worker)
        return super().start_error(worker) if refused is None else ConfigError(refused)

    def death(self, worker: Worker) -> Death | None:
        """How a worker ended, as its node has told it, or that the node is lost."""
        death = super().death(worker)
        return None if death is None else _on_node(death, worker)

    def ended(self, worker: Worker) -> Death | None:
        """As `death`, of a worker that nobody is told of."""
        death = super().ended(worker)
        return None if death is None else _on_node(death, worker)

    def remove(self, worker: Worker) -> None:
        """Let go of a worker: its node ends it. Idempotent."""
        self._engaging.pop(worker, None)
        self._refused.pop(worker, None)
        self._here.discard(worker)
        super().remove(worker)


def _on_node(death: Death, worker: Worker) -> Death:
    """The death of a worker by that of its stand-in."""
    told = told_death(death.last_output)
    if told is None:
        # Its memory was that of the stand-in.
        return death._replace(pid=worker.pid, peak_bytes=None, limit_bytes=None)
    cause = str(told.get("cause", NODE_LOST))
    return Death(
        cause=NODE_LOST if cause == "server" else cause,  # with what serves there
        pid=worker.pid,
        exit_code=told.get("exit_code"),
        signal=told.get("signal"),
        peak_bytes=told.get("peak_bytes"),
        limit_bytes=told.get("limit_bytes"),
        last_output=str(told.get("last_output", "")),
    )
