"""Workers that run on under a server which has not started them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from forebay.errors import ClosedError
from forebay.executor.server.worker_group import Death

MovedWorker = tuple[dict[str, Any], tuple[int, int, int, int]]
"""The facts of a worker; its connection, its pidfd, its side socket, its output."""


class Parent(Protocol):
    """Whose children such workers are: it ends and reaps them. Slots are those that they had."""

    def keep_until_ended(self, slots: set[int], report: Callable[[int, Death], None]) -> None:
        """Keep them; `report` is told of each end, in another thread."""

    def stop_kept(self, number: int) -> None:
        """One was asked to leave: make sure that it does. Any thread."""

    def close(self) -> None:
        """End them, and wait for that. Idempotent."""


class MovedWorkers:
    """The workers that a dispatcher has taken over, in its first slots.

    Args:
        workers: in the order of the slots that they have now: 0, 1, 2.
        parent: theirs.
    """

    def __init__(self, workers: list[MovedWorker], parent: Parent) -> None:
        self._before = [int(facts["slot"]) for facts, _ in workers]
        """Their slots under the dispatcher before."""
        self.pids = {slot: int(facts["pid"]) for slot, (facts, _) in enumerate(workers)}
        """Processes of those that live, by their slot."""
        self._parent = parent
        self._attends = False
        self._to_stop: list[int] = []
        """Workers that were asked to leave before the parent attends to that."""

    def attend(self, died: Callable[..., None]) -> None:
        """From now on `died` gets the slot of each that ends, and how, in another thread."""

        def report(before: int, death: Death) -> None:
            slot = self._before.index(before)
            self.pids = {one: pid for one, pid in self.pids.items() if one != slot}
            with contextlib.suppress(ClosedError):  # the server ends
                died(slot, *death)

        self._parent.keep_until_ended(set(self._before), report)
        self._attends = True
        while self._to_stop:
            self._parent.stop_kept(self._before[self._to_stop.pop()])

    def stop(self, slot: int) -> None:
        """It was asked to leave: make sure that it does."""
        if slot < len(self._before):
            self._to_stop.append(slot)
            while self._attends and self._to_stop:
                self._parent.stop_kept(self._before[self._to_stop.pop()])

    def close(self) -> None:
        """Have their parent end them."""
        self._parent.close()
