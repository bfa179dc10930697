"""The first import of an application, by a server that does not serve yet."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Final, NamedTuple

from forebay.errors import ConfigError
from forebay.executor.app.blame import without_own_lines
from forebay.executor.server.job import Job
from forebay.executor.server.worker_group import WorkerGroup

LOOK_MS: Final = 100
"""Between two looks at the keeper, which may have something to report."""

END_S: Final = 5.0


class Loaded(NamedTuple):
    """An application that was imported.

    Attributes:
        group: starts its workers, from a template that is warm; whoever has it closes it.
        manifest: what the application is, as JSON.
    """

    group: WorkerGroup
    manifest: bytes


def load(
    group_of: Callable[[], WorkerGroup], *, is_asked_to_stop: Callable[[], bool]
) -> Loaded | None:
    """Import an application in a template; None if this server is asked to stop meanwhile.

    Raises:
        ConfigError: it cannot be imported; the message is the traceback.
    """
    group = group_of()
    with contextlib.ExitStack() as failed:
        failed.callback(group.close, END_S)
        outcome: list[bytes] = []
        reasons: list[str] = []
        job = Job(
            group, "manifest", (), outcome.append, lambda reason, temporary: reasons.append(reason)
        )
        is_over = not job.begin()
        while not is_over:
            if is_asked_to_stop():
                job.leave()
                return None
            _wait(group, job)
            group.drive()
            is_over = job.advance()
        if not outcome:
            raise ConfigError(without_own_lines(reasons[-1]))
        failed.pop_all()
        return Loaded(group, outcome[0])


def _wait(group: WorkerGroup, job: Job) -> None:
    """Sleep until one of them has something to say, or it is time to look."""
    poll = select.poll()
    poll.register(group.fileno(), select.POLLIN)
    if job.worker is not None and job.worker.fileno() >= 0:
        poll.register(job.worker.fileno(), select.POLLIN)
    poll.poll(LOOK_MS)
