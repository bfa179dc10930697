"""The loop of a worker that runs one request at a time, in its main thread.

An interrupt is a record on the side socket and then a signal (SIGRTMIN+7). The signal's handler
raises `Cancelled` if the record names the request *and* the attempt that runs, once for each run. A
record that names an earlier run is ignored. One that names a run that has not come yet is kept for
it, so that a request cancelled on its way here never runs.
The server repeats the signal until it has an answer: if a signal comes between CPython's last check
for signals and a system call that blocks, CPython notices it only when the next one ends that call.
SIGTERM ends the worker while a request runs; an idle one ignores it.

Further calls may wait in the connection's inbox behind the one that runs. They begin in the order
of their numbers, each after the answer to the one before it, so that the server knows at this
process's death which one had begun. A recall is a record with a call's number, and the same signal.
If that call has not begun, the handler reports at once that it will not, and the loop skips it
later.
"""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from forebay import _trace
from forebay.errors import BrokenError, ClosedError, DeadlineError
from forebay.executor.app.cancelled import Cancelled, Terminated
from forebay.executor.app.context import Context
from forebay.executor.app.running import find_by
from forebay.executor.wire.ids import number_of
from forebay.executor.worker import answers
from forebay.executor.worker.entry import Call, Entry, traced, unknown
from forebay.executor.worker.failure import failure_of
from forebay.executor.worker.forks import INTERRUPT_SIGNAL, is_forked
from forebay.executor.worker.isolation import Isolation
from forebay.executor.worker.pickled import run_pickled
from forebay.executor.worker.pool import end_leases
from forebay.executor.worker.reporter import RunReporter
from forebay.executor.worker.results import LargeResult
from forebay.executor.worker.usage import UsageTeller

if TYPE_CHECKING:
    from forebay._core import Connection
    from forebay.executor.worker.children import SyncChildren
    from forebay.executor.worker.items import Items
    from forebay.executor.worker.pool import WorkerPool
    from forebay.executor.worker.results import Results
    from forebay.executor.worker.side import Side

IDLE_S = 0.25
"""After this idle time, a worker collects the garbage of the requests that it ran."""

EARLY_MAX = 64
"""Interrupts kept for requests that have not come yet."""

NOBODY = ("", 0)
"""The id and attempt in place of those of a pickled call; no interrupt names it."""

SIGTERM_EXIT = 128 + signal.SIGTERM


class SyncLoop(RunReporter):
    """Runs the requests of a connection, one after another."""

    __slots__ = (
        "_armed",
        "_base",
        "_call_number",
        "_cancelled",
        "_connection",
        "_decode",
        "_dirty",
        "_early",
        "_entries",
        "_isolation",
        "_items",
        "_leases",
        "_results",
        "_returned",
        "_running",
        "_usage",
    )

    def __init__(
        self,
        connection: Connection,
        entries: dict[str, Entry],
        side: Side,
        pool: WorkerPool | None,
        results: Results,
        items: Items,
        clients: str | None = None,
    ) -> None:
        from forebay.executor.wire.codec import decoder

        super().__init__(side, clients)
        self._connection = connection
        self._entries = entries
        self._results = results
        self._items = items
        self._leases = set() if pool is None else pool.leases
        self._decode = decoder(tuple[str, list[Any], Any]).decode
        self._running: tuple[str, int] | None = None
        """Id and attempt of the run that is under way."""
        self._armed = False
        """Whether an interrupt of that run may be raised now."""
        self._cancelled = False
        """Whether that run was interrupted."""
        self._early: list[tuple[int, int]] = []
        self._call_number = 0
        """The number of the call that began last."""
        self._returned: set[int] = set()
        """Calls that were given back, and are still in the inbox."""
        self._dirty = False
        """Whether something ran since the garbage was collected."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(INTERRUPT_SIGNAL, self._on_interrupt)
        self._base = contextvars.copy_context()
        self._isolation = Isolation()
        self._usage = UsageTeller(side, connection)

    def run(self) -> None:
        """Serve until the server has ended.

        Raises:
            SystemExit: the server told this worker to end.
            Terminated: SIGTERM came while a request ran.
        """
        sys.unraisablehook = self._on_unraisable
        find_by(self._running_request)
        try:
            self._connection.disable_spin()
            while (call := self._next()) is not None:
                number, _, head, segments, *_ = call
                self._call_number = number  # from here on it is not given back
                method, arguments, _ = self._decode(head)
                if self._returned and number in self._returned:
                    self._returned.remove(number)
                    answer: answers.Answer = (answers.RETURNED, None)
                elif method == "run":
                    answer = self._run(arguments, segments)
                elif method == "call":
                    answer = self._call(arguments, segments)
                else:
                    raise SystemExit(0)
                if is_forked():
                    os._exit(0)  # in a child that the request forked: its parent answers
                if not answers.reply(self._connection, number, answer):
                    self._connection.drain()
                # They may be large, and the next may be long to come.
                del call, head, arguments, segments, answer
        except (BrokenError, ClosedError):
            pass  # the server has ended; the keeper ends this process
        finally:
            sys.unraisablehook = sys.__unraisablehook__
            find_by()
            self._isolation.close()
            self._usage.tell()  # what is pending has no later moment

    def _next(self) -> Any:
        """The next call; if none comes for `IDLE_S`, garbage is collected first."""
        while self._dirty or self._usage.pending:
            try:
                return self._connection.next_call(IDLE_S)
            except DeadlineError:
                if self._dirty:
                    self._dirty = False
                    gc.collect()
                self._usage.tell_if_due()
        return self._connection.next_call()

    def _run(self, arguments: list[Any], segments: Any) -> answers.Answer:
        """Run one request; its answer. Whatever it does, its changes to the process are undone."""
        name, blob, id, attempt, timeout, traceparent, parent = arguments
        entry = self._entries.get(name)
        self._cancelled = False  # before it can be named
        self._running = (id, attempt)
        self._dirty = True
        try:
            if self._early and self._is_early():
                return answers.CANCELLED, None
            if entry is None:
                return answers.failure(failure_of(unknown(name, self._entries)))
            if blob is None:
                blob = segments[0]
            context = None
            if entry.takes_context:
                context = Context(
                    id,
                    attempt,
                    name,
                    timeout=timeout,
                    traceparent=traceparent,
                    parent=parent,
                    reporter=self,
                )
            call: Call = entry.call
            if entry.gives_items:
                call = self._items.call_of(entry, id, attempt)
            if _trace.spans is not None:
                call = traced(_trace.spans, entry.name, call, id, attempt, traceparent)
            return self._answer(entry, call, blob, context)
        finally:
            self._running = None
            if self._leases:
                end_leases(self._leases)
            self._isolation.restore()
            if entry is not None and entry.is_handed:
                self._isolation.wait_for_reader()  # output of the next one is not this one's
            self._usage.run_ended()

    def _answer(
        self, entry: Entry, call: Call, blob: Any, context: Context | None
    ) -> answers.Answer:
        try:
            try:
                self._armed = True
                if self._cancelled:  # since it came
                    return answers.CANCELLED, None
                value = self._base.copy().run(call, blob, context)
            finally:
                self._armed = False
            if value is None:
                return answers.NOTHING, None
            answer = self._results.encode(entry, value)
            if isinstance(answer, LargeResult):
                assert self._running is not None
                return answer.keep(*self._running)
            return answer
        except Terminated:
            raise
        except BaseException as error:
            self._isolation.restore_output()
            if self._cancelled:  # also where cleaning up raised something else
                return answers.CANCELLED, None
            return answers.failure(failure_of(error))

    def _call(self, arguments: list[Any], segments: Any) -> answers.Answer:
        """Run one pickled call; its changes to the process stay, as in a process pool."""
        blob = segments[0] if arguments[0] is None else arguments[0]
        self._running, self._cancelled = NOBODY, False
        self._dirty = True
        try:
            returned, answer = run_pickled(blob)
        finally:
            self._running = None
            self._isolation.flush()
        return answers.result(answer) if returned else answers.raised(answer)

    def _running_request(self) -> str | None:
        """The id of the request that runs; a pickled call has none."""
        running = self._running
        return None if running is None else running[0] or None

    # What the context of a request calls, besides `tell_progress`.

    def is_cancelled(self, id: str, attempt: int) -> bool:
        """Whether the request that runs was interrupted."""
        return self._cancelled and self._running == (id, attempt)

    def children_of(self, context: Context) -> SyncChildren:
        """What submits the children of this run."""
        from forebay.executor.worker.children import SyncChildren

        return SyncChildren(self.parents(), self._side, context)

    # Signal handlers: they run in the main thread, between two of its instructions.

    def _on_interrupt(self, *_: object) -> None:
        recalls: list[int] = []
        asked = self._side.interrupts(recalls)
        for number in recalls:
            if number > self._call_number and self._side.give_back(number):
                self._returned.add(number)
        running = self._running
        # A pickled call has no id, and none is asked to be interrupted.
        named = (number_of(running[0]), running[1]) if running is not None and running[0] else None
        self._early = (self._early + [one for one in asked if one != named])[-EARLY_MAX:]
        if named in asked:
            self._cancelled = True
        if self._cancelled and self._armed:
            self._armed = False
            raise Cancelled("this request was cancelled, or its time has run out")

    def _on_unraisable(self, lost: Any) -> None:
        """An exception in a destructor is lost; the next signal raises the interrupt again."""
        if lost.exc_type is Cancelled:
            self._armed = self._running is not None
        else:
            sys.__unraisablehook__(lost)

    def _on_terminate(self, *_: object) -> None:
        if self._running is not None:
            raise Terminated(SIGTERM_EXIT)

    def _is_early(self) -> bool:
        """Whether the request that is about to run was cancelled on its way here."""
        assert self._running is not None
        id, attempt = self._running
        asked = (number_of(id), attempt)
        if asked not in self._early:
            return False
        self._early.remove(asked)
        return True
