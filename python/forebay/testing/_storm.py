"""Strikes processes as a plan says, in a separate thread."""

from __future__ import annotations

import heapq
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from forebay.errors import BusyError
from forebay.testing import _process
from forebay.testing._plan import Action, Decision, decisions
from forebay.testing._process import Process
from forebay.testing._targets import Targets

NOTED = 5
"""Last strikes that the note on a failure names."""


class Strike(NamedTuple):
    """One thing that was done.

    Attributes:
        at: seconds since the storm began.
        action: what was done.
        kind: of the process: "service", "template", "keeper", or a name of yours.
        pid: the process.
    """

    at: float
    action: Action
    kind: str
    pid: int


class Storm:
    """A storm over some processes while its `with` block runs; made by `storm`.

    At the end of the block stopped processes are continued, and an exception that leaves the block
    gets a note with the seed and the last strikes.
    The thread that strikes belongs to the block; a process that is forked inside does not have it.

    Attributes:
        seed: makes the same decisions again.
        log: every strike so far, in order.
    """

    def __init__(self, seed: int, plan: Iterator[Decision], targets: Targets) -> None:
        self.seed = seed
        self.log: list[Strike] = []
        self._plan = plan
        self._targets = targets
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self._still: dict[Process, int] = {}
        """Processes that are stopped, with their pidfds."""
        self._killed: set[Process] = set()
        """Processes that were killed and have not ended yet: once is enough."""
        self._delayed: list[tuple[float, Process]] = []
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise BusyError("this storm has been entered before; make another with the same seed")
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="forebay chaos", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.stop()
        if error is not None:
            error.add_note(self._note())
        elif self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Strike no more, and continue stopped processes. Idempotent."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        for process in list(self._still):
            self._continue(process)

    def counts(self) -> dict[str, int]:
        """Strikes so far, by kind and action, as "service kill"."""
        found: dict[str, int] = {}
        for strike in list(self.log):
            key = f"{strike.kind} {strike.action}"
            found[key] = found.get(key, 0) + 1
        return found

    def _note(self) -> str:
        last = ", ".join(
            f"{strike.action} {strike.kind} {strike.pid} at {strike.at:.3f} s"
            for strike in self.log[-NOTED:]
        )
        return f"chaos: seed={self.seed}, {len(self.log)} strikes, the last: {last or 'none'}"

    def _run(self) -> None:
        try:
            due = time.monotonic()
            for decision in self._plan:
                due += decision.after
                if self._wait_until(due):
                    return
                self._strike(decision)
        except BaseException as failure:  # the thread's boundary: raised again by the block
            self._failure = failure

    def _wait_until(self, due: float) -> bool:
        """Continue meanwhile what was delayed long enough. True when the storm is over."""
        while True:
            while self._delayed and self._delayed[0][0] <= time.monotonic():
                self._continue(heapq.heappop(self._delayed)[1])
            until = min(due, self._delayed[0][0]) if self._delayed else due
            left = until - time.monotonic()
            if left <= 0 and until == due:
                return self._over.is_set()
            if self._over.wait(max(0.0, left)):
                return True

    def _strike(self, decision: Decision) -> None:
        self._forget_ended()
        found = self._targets.now()
        self._killed.intersection_update(found)
        candidates = [process for process in found if process not in self._killed]
        if decision.action == "continue":
            candidates = [process for process in candidates if process in self._still]
        elif decision.action != "kill":
            candidates = [process for process in candidates if process not in self._still]
        if not candidates:
            return
        process = candidates[int(decision.choice * len(candidates))]
        if self._do(decision, process):
            at = time.monotonic() - self._began
            self.log.append(Strike(at, decision.action, process.kind, process.pid))

    def _do(self, decision: Decision, process: Process) -> bool:
        """Whether the process was there to be struck."""
        if decision.action == "continue":
            return self._continue(process)
        pidfd = _process.opened(process)
        if pidfd is None:
            return False
        if decision.action == "kill":
            self._killed.add(process)
            struck = _process.send(pidfd, signal.SIGKILL)
            os.close(pidfd)
            return struck
        self._still[process] = pidfd
        if decision.action == "delay":
            heapq.heappush(self._delayed, (time.monotonic() + decision.hold, process))
        return _process.send(pidfd, signal.SIGSTOP)

    def _continue(self, process: Process) -> bool:
        pidfd = self._still.pop(process, None)
        if pidfd is None:
            return False
        continued = _process.send(pidfd, signal.SIGCONT)
        os.close(pidfd)
        return continued

    def _forget_ended(self) -> None:
        for process, pidfd in list(self._still.items()):
            if _process.ended(pidfd):
                del self._still[process]
                os.close(pidfd)


def storm(
    *,
    targets: Targets,
    actions: Sequence[Action] = ("kill",),
    rate: float = 10.0,
    seed: int | None = None,
    max_delay: float = 0.1,
) -> Storm:
    """A storm over `targets` for the length of a `with` block.

    From one seed come the same moments, actions and choices; which process a choice falls on
    depends on which are there then, so a failure comes again often, not always.

    Args:
        targets: which processes are struck: `services(pool) | templates(pool) | keeper(pool)`.
        actions: of "kill" (SIGKILL), "stop" (until continued), "continue" (one that was stopped)
            and "delay" (stop, and continue after at most `max_delay`); one named twice comes twice
            as often.
        rate: strikes per second, on average.
        seed: of the decisions; None: another each time, which the note on a failure names.
        max_delay: longest delay in seconds.

    Raises:
        ConfigError: an action is not known, or a number is not above 0.

    Example:
        >>> import forebay
        >>> from forebay.testing import chaos
        >>> pool = forebay.ServicePool(max_size=2)
        >>> targets = chaos.services(pool) | chaos.templates(pool) | chaos.keeper(pool)
        >>> with pool, chaos.storm(targets=targets, actions=("kill", "stop"), seed=7) as storm:
        ...     pass  # what must survive it
        >>> storm.seed
        7
    """
    chosen = secrets.randbits(32) if seed is None else seed
    plan = decisions(chosen, actions=actions, rate=rate, max_delay=max_delay)
    return Storm(chosen, plan, targets)
