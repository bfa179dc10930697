"""The loop of a worker that runs thousands of asynchronous requests side by side.

An interrupt is only a record on the side socket. It cancels the task of the request that it names,
by id and attempt; if that request has not come yet, the interrupt is kept for it.
What a request prints is attributed to it by a context variable, which its tasks and
`asyncio.to_thread` inherit; what comes from anywhere else goes to the pipe.
Changes of requests to the process (environment, directory) are undone whenever no request runs.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from forebay import _trace
from forebay.errors import BrokenError, ClosedError
from forebay.executor.app.cancelled import Terminated
from forebay.executor.app.context import Context
from forebay.executor.app.log import write_lines_as
from forebay.executor.app.running import find_by, running_request
from forebay.executor.wire.codec import decoder
from forebay.executor.wire.ids import number_of
from forebay.executor.worker import answers
from forebay.executor.worker.async_items import run_async
from forebay.executor.worker.attributed import (
    Attributed,
    Output,
    output_of_request,
    request_of_output,
)
from forebay.executor.worker.entry import Entry, unknown
from forebay.executor.worker.failure import failure_of
from forebay.executor.worker.isolation import Isolation
from forebay.executor.worker.pool import begin_leases, end_leases
from forebay.executor.worker.reporter import RunReporter
from forebay.executor.worker.results import LargeResult
from forebay.executor.worker.sync_loop import SIGTERM_EXIT
from forebay.executor.worker.usage import UsageTeller
from forebay.transport import EventLoop, new_event_loop

if TYPE_CHECKING:
    from forebay._core import Connection
    from forebay.executor.worker.children import AsyncChildren
    from forebay.executor.worker.items import Items
    from forebay.executor.worker.results import Results
    from forebay.executor.worker.side import Side

CALLS_AT_ONCE = 64
"""Requests that are begun in one turn of the loop."""

EARLY_MAX = 1024
"""Interrupts kept for requests that have not come yet."""

READABLE, WRITABLE = 1, 2


def serve_async(
    connection: Connection,
    entries: dict[str, Entry],
    side: Side,
    results: Results,
    items: Items,
    log_format: str | None = None,
    clients: str | None = None,
) -> None:
    """Serve until the server has ended; log lines are written in this format.

    Raises:
        SystemExit: the server told this worker to end.
        Terminated: SIGTERM came while requests ran.
    """
    write_lines_as(log_format, running_request)
    requests = AsyncLoop(connection, entries, side, results, items, clients)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(requests.serve())
    finally:
        requests.tell_last_usage()  # of what the end of the loop has cancelled too


def _span(run: Run, entry: Entry) -> AbstractContextManager[None]:
    """The span of a run, where there are any."""
    spans = _trace.spans
    if spans is None:
        return nullcontext()
    return spans.process(entry.name, run.id, run.attempt, run.traceparent)


class Run:
    """One request that runs.

    Attributes:
        key: number and attempt.
        asked: whether it was cancelled.
        task: what runs it.
        begun: whether the task has taken its first step.
        output: what it prints.
        traceparent: of its submitter.
    """

    __slots__ = ("asked", "attempt", "begun", "id", "key", "output", "task", "traceparent")

    def __init__(self, id: str, attempt: int, output: Output, traceparent: str | None) -> None:
        self.id = id
        self.traceparent = traceparent
        self.attempt = attempt
        self.key = (number_of(id), attempt)
        self.asked = False
        self.begun = False
        self.task: asyncio.Task[None] | None = None
        self.output = output


class AsyncLoop(RunReporter):
    """Runs all requests of a connection side by side, in one event loop."""

    def __init__(
        self,
        connection: Connection,
        entries: dict[str, Entry],
        side: Side,
        results: Results,
        items: Items,
        clients: str | None = None,
    ) -> None:
        super().__init__(side, clients)
        self._connection = connection
        self._entries = entries
        self._results = results
        self._items = items
        self._decode = decoder(tuple[str, list[Any], Any]).decode
        self._runs: dict[tuple[int, int], Run] = {}
        self._early: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._watched = 0
        self._usage = UsageTeller(side, connection)
        self._leaving: SystemExit | None = None
        """Why the process ends; None if it is the end of the server."""

    async def serve(self) -> None:
        """Serve until the server tells it to end, or has ended; then cancel what runs."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EventLoop)
        self._loop = loop
        self._selector = loop.forebay_selector
        self._over = loop.create_future()
        signal.signal(signal.SIGTERM, self._on_terminate)
        attributed = Attributed.install()
        find_by(request_of_output)
        self._isolation = Isolation()
        self._connection.attach()
        loop.add_reader(self._side.fileno(), self._on_side)
        self._step(READABLE)
        try:
            await self._over
        finally:
            self._unwatch()
            loop.remove_reader(self._side.fileno())
            attributed.remove()
            self._isolation.close()
        if self._leaving is not None:
            raise self._leaving

    # The connection.

    def _step(self, _: int) -> None:
        """Read and write as much as possible, and begin the requests that have come."""
        connection = self._connection
        try:
            connection.flush()
            connection.receive(0)
            calls = connection.poll_calls(CALLS_AT_ONCE)
            for call in calls:
                self._begin(*call)
            if connection.fault is not None or connection.over or connection.closed:
                self._finish()
                return
            self._watch()
            if calls or connection.holds_received:
                # There may be more, and the socket will not become readable for it.
                self._loop.call_soon(self._step, READABLE)
        except (BrokenError, ClosedError):
            self._finish()
        except Exception as error:  # the loop that calls this would only log it
            if not self._over.done():
                self._over.set_exception(error)

    def _watch(self) -> None:
        read, write = self._connection.wants()
        wanted = (READABLE if read else 0) | (WRITABLE if write else 0)
        if self._over.done() or wanted == self._watched:
            return
        descriptor = self._connection.fileno()
        if self._watched:
            self._selector.change(descriptor, wanted or READABLE)
        else:
            self._selector.attach(descriptor, wanted or READABLE, self._step)
        self._watched = wanted or READABLE

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = 0
            self._selector.detach(self._connection.fileno())

    def _finish(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _begin(
        self,
        number: int,
        codec: int,
        head: Any,
        segments: Any,
        remaining: float | None,
        oneway: bool,
        stream: bool,
    ) -> None:
        method, arguments, _ = self._decode(head)
        if method != "run":
            self._leaving = SystemExit(0)
            self._finish()
            return
        name, blob, id, attempt, timeout, traceparent, parent = arguments
        run = Run(id, attempt, Output(self._side, id, attempt), traceparent)
        if run.key in self._early:
            del self._early[run.key]
            self._reply(number, (answers.CANCELLED, None))
            return
        entry = self._entries.get(name)
        if entry is None:
            self._reply(number, answers.failure(failure_of(unknown(name, self._entries))))
            return
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
        self._runs[run.key] = run
        run.task = self._loop.create_task(self._run(number, run, entry, blob, context))

    def _reply(self, number: int, answer: answers.Answer) -> None:
        try:
            answers.reply(self._connection, number, answer)
            self._watch()
        except (BrokenError, ClosedError):
            self._finish()

    # One request.

    async def _run(
        self, number: int, run: Run, entry: Entry, blob: Any, context: Context | None
    ) -> None:
        """Run it in its own task, and answer."""
        run.begun = True
        output_of_request.set(run.output)
        leases = begin_leases()
        try:
            answer = await self._answer(run, entry, blob, context)
        finally:
            del self._runs[run.key]
            end_leases(leases)
            run.output.flush()
            if not self._runs:
                self._isolation.restore_output()
                self._isolation.restore()
            self._tell_usage()
        if not self._over.done():
            self._reply(number, answer)

    def _tell_usage(self) -> None:
        """Report what the run has used: now, or once that is due."""
        usage = self._usage
        if not usage.pending and usage.due > (now := time.monotonic()):
            self._loop.call_later(usage.due - now, usage.tell)
        usage.run_ended()

    def tell_last_usage(self) -> None:
        """Report what is pending, which has no later moment."""
        self._usage.tell()

    async def _answer(
        self, run: Run, entry: Entry, blob: Any, context: Context | None
    ) -> answers.Answer:
        if run.asked:
            return answers.CANCELLED, None
        try:
            with _span(run, entry):
                if entry.gives_items:
                    await run_async(self._items, entry, (run.id, run.attempt), blob, context)
                    value = None
                else:
                    value = entry.call(blob, context)
                    if entry.is_async:
                        value = await value
            if value is None:
                return answers.NOTHING, None
            answer = self._results.encode(entry, value)
            if isinstance(answer, LargeResult):
                run.task = None  # it has returned: a cancel comes too late
                answer.own()
                answer = await asyncio.to_thread(answer.keep, run.id, run.attempt)
            return answer
        except BaseException as error:
            if run.asked:
                return answers.CANCELLED, None
            if self._over.done():
                raise  # the loop ends
            return answers.failure(failure_of(error))

    # What the context of a request calls, besides `tell_progress`.

    def is_cancelled(self, id: str, attempt: int) -> bool:
        """Whether it was interrupted. Thread-safe."""
        run = self._runs.get((number_of(id), attempt))
        return run is not None and run.asked

    def children_of(self, context: Context) -> AsyncChildren:
        """What submits the children of this run."""
        from forebay.executor.worker.children import AsyncChildren

        return AsyncChildren(self.parents(), self._side, context)

    # Interrupts.

    def _on_side(self) -> None:
        self._step(READABLE)  # what was sent before the interrupt
        for key in self._side.interrupts():
            run = self._runs.get(key)
            if run is None:
                self._early[key] = None
                if len(self._early) > EARLY_MAX:
                    self._early.popitem(last=False)
            elif not run.asked:
                run.asked = True
                if run.begun and run.task is not None:
                    run.task.cancel()

    def _on_terminate(self, *_: object) -> None:
        if self._runs:
            self._leaving = Terminated(SIGTERM_EXIT)
            self._loop.call_soon_threadsafe(self._finish)
