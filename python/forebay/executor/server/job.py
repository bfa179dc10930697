"""One call in a worker of its own: to learn what an application is, or to warm its services."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forebay.errors import ConfigError, DiedError, Error
from forebay.executor.server.worker_group import Worker, WorkerGroup
from forebay.pool._internal import BLAMELESS, TRIES

KILLED = (*BLAMELESS, "not_started", "signal", "out_of_memory")
"""Deaths that say nothing about the application: a job runs no code of its requests.

One was not started where the system has no descriptor or no process left for it.
"""


@dataclass(slots=True)
class Job:
    """A worker that is forked for one call, and ended when it has answered.

    Where it, its template or its keeper is killed meanwhile, another worker is started.

    Attributes:
        group: whose worker runs it.
        method: of the worker.
        args: of the method.
        done: called with the answer.
        failed: called with what went wrong, the application's traceback where its import failed,
            and whether trying again later may help: something was killed.
    """

    group: WorkerGroup
    method: str
    args: tuple[Any, ...]
    done: Callable[[Any], None]
    failed: Callable[[str, bool], None]
    worker: Worker | None = None
    _call: int | None = None
    _tries: int = 0
    _error: Exception | None = None

    def begin(self) -> bool:
        """Have a worker started; False where the job has failed."""
        self._call = self._error = None
        self._tries += 1
        try:
            self.worker = self.group.begin()
        except (Error, OSError) as error:
            self.failed(str(error), True)
            return False
        return True

    def advance(self) -> bool:
        """Look how far it is; True once it is over, whatever came of it. Never waits."""
        assert self.worker is not None, "begun"
        if self._error is not None:
            return self._learn_why(self._error)
        try:
            if self._call is None:
                if not self.group.advance(self.worker):
                    return False
                self._call = self.group.ask(self.worker, self.method, self.args)
            answer = self.group.answer(self.worker, self._call)
        except BlockingIOError:
            return False  # it has not answered yet
        except (Error, OSError) as error:
            return self._learn_why(error)
        self.leave()
        self.done(answer)
        return True

    def _learn_why(self, error: Exception) -> bool:
        """A worker that raised says why; one that ended has to be asked for at its keeper."""
        self._error = error
        assert self.worker is not None, "begun"
        reason: Exception | None = error
        if self.group.has_broken(error):
            reason = self.group.start_error(self.worker)
            if reason is None:
                return False
        self.leave()
        killed = isinstance(reason, DiedError) and reason.cause in KILLED
        if killed and self._tries < TRIES:
            return not self.begin()
        self.failed(_text(reason), killed)
        return True

    def leave(self) -> None:
        """Let go of the worker. Idempotent."""
        worker, self.worker = self.worker, None
        if worker is not None:
            self.group.remove(worker)


def _text(reason: Exception | None) -> str:
    """What a person reads: of the pool's words only what is about the application."""
    text = str(reason)
    if isinstance(reason, ConfigError):
        return text.partition("its constructor raised in the template:\n")[2] or text
    return text
