"""Workers that run on under a server which has not started them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from forebay.errors import ClosedError
from forebay.executor.server.worker_group import Death

MovedWorker = tuple[dict[str, Any], list[int]]
"""The facts of a worker; its connection, its pidfd, its side socket, its output if it has one."""


def aged(workers: list[MovedWorker]) -> list[MovedWorker]:
    """The same, with the time that has passed since `stamp` counted to their runs."""
    passed = [int((time.monotonic() - facts["at"]) * 1000) for facts, _ in workers]
    return [
        (
            facts | {"runs": [[*run[:3], run[3] + ms, *run[4:]] for run in facts["runs"]]},
            descriptors,
        )
        for ms, (facts, descriptors) in zip(passed, workers, strict=True)
    ]


def stamp(workers: list[MovedWorker]) -> None:
    """Note when they were given; the clock is the same in all processes of the machine."""
    for facts, _ in workers:
        facts["at"] = time.monotonic()


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
        self._lock = threading.Lock()
        """Of what follows."""
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
        with self._lock:
            self._attends = True
            for slot in self._to_stop:
                self._parent.stop_kept(self._before[slot])

    def stop(self, slot: int) -> None:
        """It was asked to leave: make sure that it does."""
        if slot >= len(self._before):
            return
        with self._lock:
            if self._attends:
                self._parent.stop_kept(self._before[slot])
            else:
                self._to_stop.append(slot)

    def close(self) -> None:
        """Have their parent end them."""
        self._parent.close()
