"""The workers of one version of an application: how one is started, and how its end is learnt.

A worker group is a pool of services whose connections the dispatcher takes over.
It never waits: its owner polls its descriptors and calls again.
One thread uses it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay.config import PoolConfig
from forebay.errors import (
    BrokenError,
    ClosedError,
    ConfigError,
    DiedError,
    Error,
    LimitError,
    RemoteError,
)
from forebay.pool import ServicePool
from forebay.pool._internal import KEEPER_WAIT, NEVER_BEGUN, START, THREADS, Told, died_error

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool import Spec
    from forebay.pool._internal import PythonKind, PythonRecord

WORKERS_MAX = 2048
"""Half of what one keeper owns; memory admits fewer long before."""

_CAUSES = {
    "exit": "exit",
    "signal": "signal",
    "out_of_memory": "memory",
    "memory": "memory",
    "cpu": "time",
    "call_deadline": "time",
    "keeper_lost": "server",
    "closed": "server",
    "discarded": "server",
    "template_died": "server",
}
"""Causes of a death in the words of requests, by those of the pool."""


class Death(NamedTuple):
    """How a worker ended, as the dispatcher gets it.

    Attributes:
        cause: "exit", "signal", "memory", "time", "server", "node_lost" or "unknown".
        pid: its process.
        exit_code: where it exited.
        signal: where a signal ended it.
        peak_bytes: the most memory that it used, where that is known.
        limit_bytes: the memory that it was allowed, where there was a limit.
        last_output: what it wrote last to its own stdout and stderr.
    """

    cause: str
    pid: int
    exit_code: int | None
    signal: int | None
    peak_bytes: int | None
    limit_bytes: int | None
    last_output: str


class Worker:
    """One worker, from the order to start it until its end is reported.

    Attributes:
        record: the service, as its pool keeps it.
        pid: its process; 0 until it is ready.
        ready: whether it has answered its start, and is lent.
        removed: whether its group has let go of it.
    """

    __slots__ = (
        "_came",
        "_connection",
        "_dying",
        "_made",
        "_start",
        "pid",
        "ready",
        "record",
        "removed",
    )

    def __init__(self, record: PythonRecord) -> None:
        self.record = record
        self._connection = record.channel._connection
        self._start = record.pending or NEVER_BEGUN
        """The call that makes it."""
        self._came: dict[int, Any] = {}
        """Outcomes that were received and not asked for yet."""
        self._made = False
        """Whether it has answered its start."""
        self.pid = 0
        self.ready = False
        self.removed = False
        self._dying: float | None = None
        """When its end was first asked for, in monotonic seconds."""

    def fileno(self) -> int:
        """Its socket, to be polled while it starts and while a call has no answer."""
        return self._connection.fileno()

    def read_from_now_on(self) -> None:
        """Have outcomes come by `outcome`, which never waits."""
        if self._start != NEVER_BEGUN:
            self._connection.attach()
            self._connection.hand_over(self._start, True)

    def made(self) -> bool:
        """Whether it has answered its start. Raises what its constructor raised, or BrokenError."""
        if self._start == NEVER_BEGUN:
            raise BrokenError("the worker ended before its start was sent", delivered="no")
        if not self._made:
            self.outcome(self._start)
            self._made = True
        return True

    @property
    def is_unreported(self) -> bool:
        """Whether it has answered its start before the keeper has reported its process."""
        return self._made and not self.ready

    def begin(self, method: str, args: tuple[Any, ...]) -> int:
        """Call a method; `outcome` has what comes of it."""
        call = self.record.channel.begin(method, args)
        self._connection.hand_over(call, True)
        return call

    def outcome(self, call: int) -> Any:
        """What a call returned, or raises what it raised; BlockingIOError while it has not."""
        channel = self.record.channel
        if call not in self._came:
            self._came.update(self._connection.receive(channel._number))
        if call not in self._came:
            raise BlockingIOError
        return channel._finish(self._came.pop(call))

    def part(self) -> _core.Connection:
        """Its connection, for another reader."""
        self._connection.detach()
        return self._connection

    @property
    def generation(self) -> int:
        """Of its lease: calls of another one are refused as stale."""
        return self.record.handle.tag

    def overdue(self) -> bool:
        """Whether the keeper has had its time to report the end, counted from the first look."""
        now = time.monotonic()
        if self._dying is None:
            self._dying = now
        return now - self._dying >= KEEPER_WAIT


class WorkerGroup:
    """Starts and removes the workers of one version.

    Args:
        spec: what a worker is; its class is made once, in the template (`Reset.FORK`).
        start_timeout: seconds that a start may take, the import of the application included.
        name: stands in messages.
    """

    def __init__(self, spec: Spec[Any], *, start_timeout: float, name: str) -> None:
        # All of them are given: settings of pools are about services, not about workers.
        settings = PoolConfig(
            max_size=WORKERS_MAX,
            spares=0,  # a fork is fast enough without an idle process ahead
            idle_timeout=0,
            max_lifetime=0,
            ping_after=0,
            start_timeout=start_timeout,
        )
        self._pool = ServicePool(**asdict(settings), name=name)
        self._core = self._pool.core
        self._kind: PythonKind = self._pool._kind_of(spec, by_value=False)  # type: ignore[assignment]
        try:
            self._watch = self._core.watch()
        except Error:  # no descriptor is left
            self._pool.close()
            raise
        self.living = 0
        """Workers that were begun, and not removed."""

    def fileno(self) -> int:
        """Readable when `drive` has something to do."""
        return self._watch

    def drive(self) -> None:
        """Take in what the keeper reports; never waits."""
        self._core.drive()

    def begin(self) -> Worker:
        """Have a worker forked; it is ready once `advance` says so.

        Raises:
            LimitError: there are too many.
            BrokenError: the keeper is gone; the next try starts another.
        """
        answer, handle, ticket, _ = self._core.ask(self._kind.key, THREADS)
        if answer != START or handle is None:
            self._core.leave(ticket)
            raise LimitError(
                f"{WORKERS_MAX} workers live already; lower max_workers",
                limit=WORKERS_MAX,
                value=WORKERS_MAX + 1,
            )
        worker = Worker(self._pool.start(self._kind, handle))  # type: ignore[arg-type]
        worker.read_from_now_on()
        self.living += 1
        return worker

    def advance(self, worker: Worker) -> bool:
        """Look at a worker that starts; whether it is ready now. Never waits.

        Raises:
            RemoteError, BrokenError: it will never be ready; ask for its death.
        """
        if worker.ready:
            return True
        try:
            worker.made()
        except BlockingIOError:
            return False
        pid = self._core.lend(worker.record.handle, self._kind.key)
        if pid is None:
            if self._core.death(worker.record.handle) is not None:
                raise BrokenError("the worker ended when it was ready", delivered="no")
            return False  # the keeper reports it presently
        worker.pid = pid
        worker.ready = True
        return True

    def place(self, worker: Worker) -> bool:
        """Whether a worker that is ready has a place to run, as all have here. Never waits."""
        return True

    @property
    def can_place(self) -> bool:
        """Whether a worker that starts may find a place."""
        return True

    def is_measured(self, worker: Worker) -> bool:
        """Whether the memory of its runs is that of its process, as for all here."""
        return True

    @property
    def owns_workers(self) -> bool:
        """Whether its workers are processes of this server, whose ends the kernel tells it."""
        return True

    def know_code(self, code: str) -> None:
        """The hash of the code that its first worker has told: there is no other here."""

    def ask(self, worker: Worker, method: str, args: tuple[Any, ...] = ()) -> int:
        """Call a method of a worker that is ready; `answer` has what it returned."""
        return worker.begin(method, args)

    def answer(self, worker: Worker, call: int) -> Any:
        """What a call returned.

        Raises:
            BlockingIOError: it has not come yet.
            RemoteError, BrokenError: the call failed, the worker ended.
        """
        return worker.outcome(call)

    def deploy(self, worker: Worker, *args: Any) -> tuple[_core.Connection, int]:
        """Have a ready worker serve from now on, for the next owner of its connection.

        Args:
            worker: it is called no more from here.
            args: of its method `serve`.

        Returns:
            The connection, and a duplicate of its pidfd; both are the caller's to give away.

        Raises:
            BrokenError: it has ended.
        """
        worker.record.channel.send_oneway("serve", args)
        process = self._core.process(worker.record.handle)
        if process is None:
            raise BrokenError("the worker ended before it served", delivered="no")
        return worker.part(), os.dup(process[1])

    def end(self, worker: Worker) -> None:
        """Kill a worker; its death follows."""
        process = self._core.process(worker.record.handle)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(process[1], signal.SIGKILL)

    @staticmethod
    def has_broken(error: Exception) -> bool:
        """Whether an error means that the worker is gone, so that its keeper knows why."""
        return isinstance(error, (BrokenError, OSError)) and not isinstance(error, RemoteError)

    def death(self, worker: Worker) -> Death | None:
        """How a worker ended; None while the keeper may still report. Never waits."""
        told = self._told(worker)
        return None if told is None else _death(told)

    def ended(self, worker: Worker) -> Death | None:
        """How a worker ended that nobody is told of; None while it lives."""
        try:
            told = self._core.death(worker.record.handle)
        except (ClosedError, BrokenError):
            told = "keeper_lost", worker.pid, 0, b"", 0, 0
        return None if told is None else _death(told)

    def start_error(self, worker: Worker) -> DiedError | ConfigError | None:
        """Why a worker never became ready; None while the keeper may still report."""
        told = self._told(worker)
        return None if told is None else died_error("worker", told)

    def _told(self, worker: Worker) -> Told | None:
        """What the keeper reports of an end, or a stand-in once it is late."""
        try:
            told = self._core.death(worker.record.handle)
        except (ClosedError, BrokenError):
            return "keeper_lost", worker.pid, 0, b"", 0, 0
        if told is None and worker.overdue():
            return "lost", worker.pid, 0, b"", 0, 0
        return told

    def remove(self, worker: Worker) -> None:
        """Let go of a worker: where it still lives, the keeper ends it. Idempotent."""
        if not worker.removed:
            worker.removed = True
            self.living -= 1
            with contextlib.suppress(Error, OSError):  # it ended with its keeper
                self._pool.discard(worker.record)

    def close(self, timeout: float) -> None:
        """End every worker, the template and the keeper; waits for them. Idempotent."""
        self._pool.close(timeout)
        watch, self._watch = self._watch, -1
        if watch >= 0:
            os.close(watch)


def local_group(spec: Spec[Any], start_timeout: float) -> WorkerGroup:
    """The group of a version whose workers run here."""
    return WorkerGroup(spec, start_timeout=start_timeout, name="workers")


def _death(told: Told) -> Death:
    cause, pid, code, text, peak_bytes, limit_bytes = told
    return Death(
        cause=_CAUSES.get(cause, "unknown"),
        pid=pid,
        exit_code=code if cause == "exit" else None,
        signal=code if cause != "exit" and pid and code else None,
        peak_bytes=peak_bytes or None,
        limit_bytes=limit_bytes or None,
        last_output=text.decode(errors="replace").rstrip(),
    )
