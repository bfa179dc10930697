"""Faults of processes: SIGKILL, or SIGSTOP for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from forebay.testing import _process
from forebay.testing._targets import Targets
from forebay.testing.experiment.injector import Injected
from forebay.testing.experiment.schedule import Planned

__all__ = ["Kill", "Stop"]


class _Signal:
    """A signal to one of some processes.

    Args:
        targets: which.
        refusal: why it is not allowed, if it is not.
    """

    def __init__(self, targets: Targets, refusal: str | None = None) -> None:
        self._targets = targets
        self._refusal = refusal

    def reason_not(self) -> str | None:
        """As of every injector."""
        return self._refusal


class Kill(_Signal):
    """SIGKILL to one of some processes.

    Args:
        targets: which.
        refusal: why it is not allowed, if it is not.
        afterwards: called once its time has passed.
    """

    def __init__(
        self,
        targets: Targets,
        refusal: str | None = None,
        afterwards: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(targets, refusal)
        self._afterwards = afterwards

    def inject(self, planned: Planned) -> Injected | None:
        """Kill one."""
        struck = _chosen(self._targets, planned)
        if struck is None:
            return None
        process, pidfd = struck
        was_there = _process.send(pidfd, signal.SIGKILL)
        os.close(pidfd)
        if not was_there:
            return None
        text = f"{process.kind} {process.pid}"
        return Injected(text) if self._afterwards is None else Injected(text, self._afterwards)


class Stop(_Signal):
    """SIGSTOP to one of some processes, and SIGCONT."""

    def inject(self, planned: Planned) -> Injected | None:
        """Stop one."""
        struck = _chosen(self._targets, planned)
        if struck is None:
            return None
        process, pidfd = struck

        def undo() -> None:
            _process.send(pidfd, signal.SIGCONT)
            os.close(pidfd)

        if not _process.send(pidfd, signal.SIGSTOP):
            os.close(pidfd)
            return None
        return Injected(f"{process.kind} {process.pid} for {planned.lasts:.1f} s", undo)


def _chosen(targets: Targets, planned: Planned) -> tuple[_process.Process, int] | None:
    """The process that the plan's choice falls on, with its pidfd."""
    found = targets.now()
    if not found:
        return None
    process = found[int(planned.choice * len(found))]
    pidfd = _process.opened(process)
    return None if pidfd is None else (process, pidfd)
