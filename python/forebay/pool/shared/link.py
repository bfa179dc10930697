"""One connection to the lender of a shared pool, with the kinds and services known through it.

A lease belongs to the connection over which it was taken; a lender that was started again does not
know it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from forebay import _core
from forebay.errors import (
    BrokenError,
    ClosedError,
    DeadlineError,
    DiedError,
    Error,
    LimitError,
)
from forebay.pool.lend.kind import CommandKind
from forebay.pool.lend.step import Steps
from forebay.pool.lend.unsettled import DiscardCause
from forebay.pool.lend.wait import Deadline, LoopWaiter, LoopWaiters
from forebay.pool.programs.socket import ProgramSocket
from forebay.pool.service.reset import ENDED
from forebay.pool.shared.record import (
    Given,
    SharedProgramRecord,
    SharedPythonRecord,
    SharedRecord,
    taken_on,
)
from forebay.pool.watch.death import died_error
from forebay.pool.watch.follow import LOOK_AGAIN, Follow, Output

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.pool.shared.kind import SharedCommandKind, SharedKind

STATUS, KIND, LENT, START, MET, DIED, OUTPUT, SERVICES, DRAINED, REFUSED, FAILED = range(1, 12)
"""Answers of the lender, by their first number."""

EXPLAIN_WAIT = 1.0
"""Seconds that a failed call waits for the lender to report the cause, which takes milliseconds."""

STATUS_NAMES = (
    "pid",
    "max_size",
    "max_leases",
    "max_waiters",
    "live",
    "idle",
    "settling",
    "waiters",
    "starts",
    "leases",
    "programs",
    "held",
)

Answer = tuple[Any, ...]

_log = logging.getLogger(__name__)


class Answered:
    """A step: wait until a question is answered or the deadline passes; then `answer` is None."""

    __slots__ = ("_core", "_deadline", "_ticket", "answer")

    def __init__(self, core: _core.Borrower, ticket: int, deadline: Deadline) -> None:
        self._core = core
        self._ticket = ticket
        self._deadline = deadline
        self.answer: Answer | None = None

    def block(self, pool: Any) -> None:
        """Wait in this thread."""
        self.answer = self._core.wait(self._ticket, self._deadline.left())

    async def wait(self, pool: Any) -> None:
        """Wait on the running loop."""
        waiter: LoopWaiter = pool.waiter()
        await waiter.wait_until(self._found, self._deadline)

    def _found(self, queue: _core.WakeQueue) -> bool:
        self.answer = self._core.look(self._ticket, queue)
        return self.answer is not None


class Lost:
    """Leases that were collected while open; their services are ended at the next acquire."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: deque[SharedRecord] = deque()

    def __bool__(self) -> bool:
        return bool(self._records)

    def lose(self, record: SharedRecord) -> None:
        """Note that a lease was collected. The collector may call this at any moment."""
        self._records.append(record)

    def end(self, link: Link) -> None:
        """Have the services of lost leases ended."""
        while self._records:
            record = self._records.popleft()
            _log.warning(
                "pool %r: a lease of %s (process %d) was never ended; its service is ended now; "
                "use `with` or call lease.close()",
                link.name,
                record.kind.name,
                record.pid,
            )
            link.discard(record)


class Link:
    """A connection to the lender, and the services that this program knows through it.

    Attributes:
        core: the connection.
        name: for messages.
        keys: numbers that the lender gave to kinds, by their digest.
        watched: leases that were collected before they were ended.
    """

    def __init__(self, path: Path) -> None:
        self._inherited = True  # until it is connected: `__del__` has nothing to close before
        self.core = _core.Borrower(path)
        self.name = f"shared, at {path}"
        self.keys: dict[bytes, int] = {}
        self.watched = Lost()
        self._lock = threading.Lock()
        """Guards the records; no thread waits while it holds it."""
        self._records: dict[int, SharedRecord] = {}
        self._waiters = LoopWaiters(self.core)  # type: ignore[arg-type]
        self._inherited = False

    @property
    def broken(self) -> bool:
        """Whether the lender is known to be gone."""
        return self.core.ended

    def ask(self, ticket: int, deadline: Deadline) -> Steps[Answer | None]:
        """The answer to a question; None if it did not come in time, which withdraws the question.

        Raises:
            LimitError: the lender refuses, because of the limit that the message names.
            BrokenError: the lender failed to do it, or has ended.
        """
        step = Answered(self.core, ticket, deadline)
        try:
            yield step
        except BaseException:
            with contextlib.suppress(Error):  # a lender that has ended has no question either
                self._throw_away(self.core.leave(ticket))
            raise
        answer = step.answer or self.core.leave(ticket)
        return answer if answer is None else check(answer)

    def taken(self, kind: SharedKind | SharedCommandKind, answer: Answer) -> SharedRecord:
        """The record of a service that is lent."""
        _, handle, pid, owed, met, changes_hands, given = answer
        if given[0] < 0:
            record = self._records[handle.slot]
            record.handle = handle  # every call of the lease carries its generation
            if changes_hands:
                record.renew()
        else:
            record = taken_on(kind, handle, Given(*given), pid=pid, met=met)
            self._keep(handle.slot, record)
        if owed:
            record.owe(owed)
        return record

    def start(
        self, kind: SharedKind | SharedCommandKind, answer: Answer, deadline: Deadline
    ) -> Steps[SharedRecord]:
        """The record of a service that this program starts."""
        _, handle, descriptor = answer
        record: SharedRecord
        if isinstance(kind, CommandKind):
            record = yield from self._launch(kind, handle, deadline)
        else:
            record = SharedPythonRecord.begun(kind, handle, descriptor)
        self._keep(handle.slot, record)
        return record

    def _launch(
        self, kind: SharedCommandKind, handle: _core.Handle, deadline: Deadline
    ) -> Steps[SharedProgramRecord]:
        """Have a program started that this program makes up."""
        stream = None
        try:
            launch = kind.launch()
            stream = launch.stream
            ticket = self.core.launch(
                handle,
                launch.arguments,
                launch.environment,
                launch.directory,
                launch.readiness,
                launch.caller_looks,
                kind.command.stdio,
                launch.port or 0,
                launch.ends(),
            )
            answer = yield from self.ask(ticket, deadline)
            if answer is None:
                raise DeadlineError(
                    f"the lender did not start {kind.name} in time", timeout=deadline.timeout
                )
        except BaseException:
            if stream is not None:
                stream.close()
            self.core.discard(handle)
            raise
        return SharedProgramRecord(kind, handle, ProgramSocket(answer[2]), stream, launch.port)

    def give_back(self, record: SharedRecord, dirty: bool) -> None:
        """End a lease: give the service back, after a reset if it has one, or have it ended."""
        if self._inherited:
            return  # a forked child leaves the `with` block too, but only its parent ends the lease
        try:
            if not dirty and record.idle() and record.kind.resets not in ENDED:
                owed = record.reset()
                if owed is not None:
                    self.core.release(record.handle, owed)
                    return
            clean = not dirty and record.idle() and record.kind.resets in ENDED
        except (BrokenError, ClosedError):
            clean = False
        self.discard(record, "returned" if clean else "discarded")

    def discard(self, record: SharedRecord, cause: DiscardCause = "discarded") -> None:
        """Have a service ended; its successor may start at once."""
        with contextlib.suppress(BrokenError, ClosedError):  # it ended with the lender
            self.core.discard(record.handle, cause)
        self._forget(record)
        if cause == "returned":
            # Closed without notifying the service: it could end before the lender knows why.
            record.part()
        else:
            record.close()

    def abandon(self, record: SharedRecord) -> None:
        """Leave a service that is starting to the next caller, of this program or another."""
        try:
            left = record.leave_start()
            if left is None:
                self.discard(record)
                return
            self.core.abandon(record.handle, *left)
        except (Error, OSError):
            self.discard(record)  # this caller has left, and the next one starts another
            return
        self._forget(record)
        record.part()

    def learn_process(self, record: SharedRecord, deadline: Deadline) -> Steps[None]:
        """Tell the lender that a service is ready, and learn its process."""
        answer = yield from self.ask(self.core.lend(record.handle, record.report), deadline)
        if answer is None:
            raise DeadlineError(
                "the lender did not report a process id in time", timeout=deadline.timeout
            )
        if answer[0] == DIED:
            raise died_error(record.kind.name, answer[1])
        _, pid, process = answer
        try:
            record.known(pid, process)
        finally:
            os.close(process)

    def follow(self, handle: _core.Handle) -> Follow:
        """The lines of a service, as it writes them."""
        return Follow(cast("Any", self), handle)

    def written(self, handle: _core.Handle, seen: int) -> Steps[Output]:
        """What a service wrote beyond the bytes that were seen, once there is some."""
        answer = yield from self.ask(self.core.follow(handle, seen), Deadline(LOOK_AGAIN))
        if answer is None:
            return Output()
        if answer[0] == DIED:
            return Output(death=answer[1])
        return Output((answer[1], answer[2]))

    def directory(self, handle: _core.Handle) -> Steps[str]:
        """The directory of a service."""
        answer = yield from self._told(self.core.directory(handle))
        return os.fsdecode(answer[1])

    def branch(self, record: SharedPythonRecord, deadline: Deadline) -> Steps[SharedPythonRecord]:
        """Have a lent service copied; its holder tells it to fork."""
        answer = yield from self.ask(self.core.branch(record.handle), deadline)
        if answer is None:
            raise DeadlineError("the lender did not order a copy in time", timeout=deadline.timeout)
        _, handle, descriptor = answer
        copied = SharedPythonRecord.copied(record.kind.copies, handle, descriptor)
        self._keep(handle.slot, copied)
        return copied

    def explain(
        self, handle: _core.Handle, name: str, error: BaseException
    ) -> Steps[BaseException]:
        """Why a service broke: its death if the lender reports it in time, else `error`."""
        if isinstance(error, DiedError):
            return error  # the lender has reported it already
        try:
            question = self.ask(self.core.death(handle), Deadline(EXPLAIN_WAIT))
            answer = yield from question
        except (BrokenError, ClosedError) as gone:
            return gone if isinstance(gone, BrokenError) and self._is_over() else error
        return error if answer is None else died_error(name, answer[1])

    def output(self, handle: _core.Handle) -> Steps[str]:
        """The last output of a service."""
        answer = yield from self._told(self.core.output(handle))
        text: bytes = answer[1]
        return text.decode(errors="replace")

    def waiter(self) -> LoopWaiter:
        """The waiter of the running event loop."""
        return self._waiters.here()

    def close(self) -> None:
        """Disconnect: the lender ends the services that this program holds. Idempotent."""
        self.core.close()
        self._part()

    def __del__(self) -> None:
        # The last leases keep a link whose lender has ended; nothing closes it after them.
        if not self._inherited:  # in a forked child its lock may be held for ever
            self._part()

    def _part(self) -> None:
        with self._lock:
            records = list(self._records.values())
            self._records.clear()
        for record in records:
            with contextlib.suppress(Error):
                record.part()

    def forked(self) -> None:
        """In a forked child: the leases are the parent's."""
        self._inherited = True
        self.watched = Lost()
        self._lock = threading.Lock()  # another thread may have held it
        self._waiters.forked()
        self.core.forked()

    def _told(self, ticket: int) -> Steps[Answer]:
        """The answer to a question about a lease, which the lender gives at once."""
        answer = yield from self.ask(ticket, Deadline(EXPLAIN_WAIT))
        if answer is None:
            raise BrokenError(f"pool {self.name!r} did not answer within {EXPLAIN_WAIT:g} s")
        return answer

    def _is_over(self) -> bool:
        try:
            return self.core.over
        except ClosedError:
            return True

    def _keep(self, slot: int, record: SharedRecord) -> None:
        with self._lock:
            old = self._records.get(slot)
            self._records[slot] = record
        if old is not None:
            old.part()

    def _forget(self, record: SharedRecord) -> None:
        slot = record.handle.slot
        with self._lock:
            if self._records.get(slot) is record:
                del self._records[slot]

    def _throw_away(self, answer: Answer | None) -> None:
        """Give back what was granted while the caller left."""
        if answer is None or answer[0] not in (LENT, START):
            return
        for descriptor in answer[2:3] if answer[0] == START else answer[6][:3]:
            if descriptor >= 0:
                os.close(descriptor)
        self.core.discard(answer[1])


def status_of(answer: Answer) -> dict[str, Any]:
    """Sizes and counters by name, and deaths by cause."""
    return {**dict(zip(STATUS_NAMES, answer[1], strict=True)), "deaths": dict(answer[2])}


def check(answer: Answer) -> Answer:
    """Raise the error that an answer describes."""
    if answer[0] == REFUSED:
        _, limit, maximum, value, advice = answer
        raise LimitError(
            f"{limit} is {maximum}, {value} asked for; {advice}", limit=maximum, value=value
        )
    if answer[0] == FAILED:
        raise BrokenError(str(answer[1]), delivered="no")
    return answer
