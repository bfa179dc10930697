"""One connection to the lender of a shared pool, with the kinds and services known through it.

A lease belongs to the connection over which it was taken; a lender that was started again does not
know it.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
from forebay.pool.lend.unsettled import DiscardCause, Holding
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
from forebay.pool.watch.watched import Watched

if TYPE_CHECKING:
    from pathlib import Path

    from forebay.pool.shared.kind import SharedCommandKind, SharedKind

STATUS, KIND, LENT, START, MET, DIED, OUTPUT, SERVICES, DRAINED, REFUSED, FAILED = range(1, 12)
"""Answers of the lender, by their first number."""

JOINED = 15
"""One more: a further lease of a service that this program holds."""

ANSWER_WAIT = 5.0
"""Seconds that the lender may take to answer a question that waits for no service."""

ANSWER_AT_ONCE_WAIT = 0.25
"""Seconds that a caller whose time ran out waits for what the lender answers at once."""

EXPLAIN_WAIT = 1.0
"""Seconds that a failed call waits for the lender to report the cause, which takes milliseconds."""

LAUNCHED = 1
"""In place of the call that a program owes: it has yet to become ready."""

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
    "max_running",
    "leased",
    "starting",
    "waits",
    "resets",
)

Answer = tuple[Any, ...]


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


class Terms(NamedTuple):
    """What the lender wants of the programs that borrow from it."""

    canary_every: int = 0
    """How often a service is given back between two looks for what leases left in it; 0: none."""
    min_idle: int = 0
    """Idle services that are kept ready of each kind that this program uses."""
    leak_after_ms: int = 0
    """After how long a lease that has not ended is reported; 0: never."""
    reset_ms: int = 0
    """How long a reset may take."""


class Link:
    """A connection to the lender, and the services that this program knows through it.

    Attributes:
        core: the connection.
        name: for messages.
        keys: numbers that the lender gave to kinds, by their digest.
        terms: what the lender wants, known with the first kind.
        watched: leases that last too long, or that were collected before they were ended.
        watchful: whether leases are watched.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._inherited = True  # until it is connected: `__del__` has nothing to close before
        self._path = path
        self.core = _core.Borrower(path)
        self.name = name
        self.keys: dict[bytes, int] = {}
        self.terms = Terms()
        self.watched = Watched(self, 0.0)
        self.watchful = False
        self._readers = 0
        """Readers of events."""
        self._held: dict[tuple[int, int], tuple[SharedRecord, float]] = {}
        """Leases since when, if they are watched."""
        self._lock = threading.Lock()
        """Guards the records; no thread waits while it holds it."""
        self._records: dict[int, SharedRecord] = {}
        self._idle: set[int] = set()
        """Slots of services that this program has given back, and keeps the descriptors of."""
        self._waiters = LoopWaiters(self.core)  # type: ignore[arg-type]
        self._inherited = False

    @property
    def broken(self) -> bool:
        """Whether the lender is known to be gone."""
        return self.core.ended

    def ask(
        self, ticket: int, deadline: Deadline, *, at_once: bool = False
    ) -> Steps[Answer | None]:
        """The answer to a question; None if it did not come in time, which withdraws the question.

        With `at_once`, what the lender can give without a wait comes however short the deadline is.

        Raises:
            LimitError: the lender refuses, because of the limit that the message names.
            BrokenError: the lender failed to do it, or has ended.
        """
        step = Answered(self.core, ticket, deadline)
        try:
            yield step
            if step.answer is None and at_once:
                # What can be answered at once is answered in the order of asking, so before this.
                yield from self.ask(self.core.status(), Deadline(ANSWER_AT_ONCE_WAIT))
                step.answer = self.core.look(ticket, None)
        except BaseException:
            with contextlib.suppress(Error):  # a lender that has ended has no question either
                self.discard_answer(step.answer or self.core.leave(ticket))
            raise
        answer = step.answer or self.core.leave(ticket)
        return answer if answer is None else check(answer)

    def told(self, ticket: int) -> Steps[Answer]:
        """The answer to a question that waits for no service.

        The lender gives it at once, or, of an output, once the keeper has reported it.
        """
        answer = yield from self.ask(ticket, Deadline(ANSWER_WAIT))
        if answer is None:
            raise BrokenError(
                f"the lender at {self._path} did not answer within {ANSWER_WAIT:g} s; "
                "see whether its process is stopped (forebay serve)"
            )
        return answer

    def key(self, kind: SharedKind | SharedCommandKind, deadline: Deadline) -> Steps[int | None]:
        """The number of a kind, which the lender gives when it is first asked; None: too late."""
        known = self.keys.get(kind.digest)
        if known is not None:
            return known
        answer = yield from self.ask(self.core.kind(*kind.told), deadline, at_once=True)
        if answer is None:
            return None
        _, key, terms = answer
        if not self.keys:
            self.terms = Terms(*terms)
            self.watched = Watched(self, self.terms.leak_after_ms / 1000)
            self.watchful = self.watchful or self.terms.leak_after_ms > 0
        self.keys[kind.digest] = key
        return int(key)

    def taken(self, kind: SharedKind | SharedCommandKind, answer: Answer) -> SharedRecord:
        """The record of a service that is lent."""
        _, handle, pid, owed, met, changes_hands, _, checked, given = answer
        try:
            if given[0] < 0:
                record = self._known(handle)
                record.handle = handle  # every call of the lease carries its generation
                record.lend_as(kind)
                if changes_hands:
                    record.renew()
            else:
                record = taken_on(kind, handle, Given(*given), pid=pid, met=met)
                self._keep(handle.slot, record)
            if owed:
                record.owe(owed)
        except BaseException:
            self._discard_handle(handle)
            raise
        if isinstance(record, SharedPythonRecord):  # the canary does not look into a program
            record.checked = checked
        self._idle.discard(handle.slot)
        return record

    def joined(self, handle: _core.Handle) -> SharedRecord:
        """The record of a service that a further lease shares."""
        try:
            record = self._known(handle)
            if record.handle.generation == handle.generation:
                return record
            raise _forgotten()
        except BaseException:
            if not self.core.release_shared(handle, True):
                self._discard_handle(handle)
            raise

    def _known(self, handle: _core.Handle) -> SharedRecord:
        """The record of a service that this program has had before."""
        record = self._records.get(handle.slot)
        if record is None:
            raise _forgotten()
        return record

    def open(self, record: SharedRecord) -> None:
        """Let other callers share a service that has settled, as far as its class allows."""
        with contextlib.suppress(BrokenError, ClosedError):  # the service ended with the lender
            self.core.open(record.handle)

    def start(
        self, kind: SharedKind | SharedCommandKind, answer: Answer, deadline: Deadline
    ) -> Steps[SharedRecord]:
        """The record of a service that this program starts."""
        _, handle, descriptor, _ = answer
        self._let_go()
        record: SharedRecord
        if isinstance(kind, CommandKind):
            record = yield from self._launch(kind, handle, deadline)
        else:
            canary = self.terms.canary_every > 0
            try:
                record = SharedPythonRecord.begun(kind, handle, descriptor, canary=canary)
            except BaseException:
                self._discard_handle(handle)
                raise
            record.checked = self.terms.canary_every == 1
        self._keep(handle.slot, record)
        return record

    def _launch(
        self, kind: SharedCommandKind, handle: _core.Handle, deadline: Deadline
    ) -> Steps[SharedProgramRecord]:
        """Have a program started that this program makes up.

        A caller that leaves meanwhile leaves the start to the next one.
        """
        launch = None
        try:
            launch = kind.launch()
            ends = launch.ends()  # from here on the core owns the program's end
            ticket = self.core.launch(handle, launch.how, launch.port or 0, ends)
        except BaseException:
            if launch is not None and launch.stream is not None:
                launch.stream.close()
            self._discard_handle(handle)
            raise
        step = Answered(self.core, ticket, deadline)
        try:
            yield step
            if step.answer is None:
                raise DeadlineError(
                    f"the lender did not start {kind.name} in time", timeout=deadline.timeout
                )
            link = ProgramSocket(check(step.answer)[2])
        except BaseException:
            if launch.stream is not None:
                launch.stream.close()
            close_descriptors(step.answer)
            with contextlib.suppress(Error):  # the program ended with the lender
                close_descriptors(self.core.leave(ticket))
                self.core.abandon(handle, LAUNCHED, True, b"")
            raise
        return SharedProgramRecord(kind, handle, link, launch.stream, launch.port)

    def attend(self, record: SharedRecord) -> None:
        """Watch a new lease."""
        lease = record.handle.slot, record.handle.generation
        self._held.setdefault(lease, (record, time.monotonic()))  # one for those that share it
        self.watched.note(record)

    def look(self) -> None:
        """Report leases that last too long, and end lost ones."""
        self.watched.look()

    def lost(self, record: SharedRecord) -> None:
        """Note that an open lease was collected. The collector may call this at any moment."""
        self.watched.lose(record)
        self.watchful = True

    def holdings(self) -> list[Holding]:
        """What this program has leased, as far as leases are watched."""
        now = time.monotonic()
        return [
            Holding(lease, record.pid, record.kind.name, now - since)
            for lease, (record, since) in list(self._held.items())
        ]

    @property
    def reset_timeout(self) -> float:
        """Seconds that a service may take for a reset, or to say that it answers."""
        return self.terms.reset_ms / 1000

    def is_over(self) -> bool:
        """Whether no further try can get a service: the lender has ended."""
        try:
            return self.core.over
        except ClosedError:
            return True

    def give_back(self, record: SharedRecord, dirty: bool) -> None:
        """End a lease: give the service back, after a reset if it has one, or have it ended."""
        if self._inherited:
            return  # a forked child leaves the `with` block too, but only its parent ends the lease
        if record.kind.max_leases > 1:
            with contextlib.suppress(ClosedError):
                if self.core.release_shared(record.handle, dirty):
                    return  # others hold it too
        if self._held:
            self._held.pop((record.handle.slot, record.handle.generation), None)
        try:
            cause = self._release(record, dirty)
        except (BrokenError, ClosedError):
            cause = "discarded"
        except BaseException:
            self.discard(record)  # the last lease of it has ended: nobody else would
            raise
        if cause is not None:
            self.discard(record, cause)

    def _release(self, record: SharedRecord, dirty: bool) -> DiscardCause | None:
        """Give a service back that nobody holds; or why it is to be ended."""
        if dirty or not record.idle():
            return "discarded"
        if record.kind.resets in ENDED:
            return "returned"
        owed = record.reset()
        if owed is None:
            return "discarded"
        self._idle.add(record.handle.slot)
        self.core.release(record.handle, owed)
        return None

    def discard(self, record: SharedRecord, cause: DiscardCause = "discarded") -> None:
        """Have a service ended; its successor may start at once."""
        with contextlib.suppress(BrokenError, ClosedError):  # it ended with the lender
            self.core.discard(record.handle, cause)
        self._forget(record)
        if cause == "returned":
            # Closed without notifying the service: it could end before the lender knows why.
            record.close_local()
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
        record.close_local()

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
        record.known(pid, process)

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
        answer = yield from self.told(self.core.directory(handle))
        return os.fsdecode(answer[1])

    def branch(self, record: SharedPythonRecord, deadline: Deadline) -> Steps[SharedPythonRecord]:
        """Have a lent service copied; its holder tells it to fork."""
        answer = yield from self.ask(self.core.branch(record.handle), deadline)
        if answer is None:
            raise DeadlineError("the lender did not order a copy in time", timeout=deadline.timeout)
        _, handle, descriptor, _ = answer
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
            return gone if isinstance(gone, BrokenError) and self.is_over() else error
        return error if answer is None else died_error(name, answer[1])

    def output(self, handle: _core.Handle) -> Steps[str]:
        """The last output of a service."""
        answer = yield from self.told(self.core.output(handle))
        text: bytes = answer[1]
        return text.decode(errors="replace")

    def add_readers(self, change: int) -> int:
        """Readers of events come or go; how many there are."""
        with self._lock:
            self._readers += change
            return self._readers

    def waiter(self) -> LoopWaiter:
        """The waiter of the running event loop."""
        return self._waiters.here()

    def close(self) -> None:
        """Disconnect: the lender ends the services that this program holds. Idempotent."""
        self.core.close()
        self._close_records()

    def __del__(self) -> None:
        # The last leases keep a link whose lender has ended; nothing closes it after them.
        if not self._inherited:  # in a forked child its lock may be held for ever
            self._close_records()

    def _close_records(self) -> None:
        with self._lock:
            records = list(self._records.values())
            self._records.clear()
        for record in records:
            with contextlib.suppress(Error):
                record.close_local()

    def forked(self) -> None:
        """In a forked child: the leases are the parent's."""
        self._inherited = True
        self.watched = Watched(self, 0.0)
        self._lock = threading.Lock()  # another thread may have held it
        self._waiters.forked()
        self.core.forked()

    def _let_go(self) -> None:
        """Close what is kept of services that ended while this program did not hold them."""
        with self._lock:
            kept = [self._records[slot] for slot in self._idle & self._records.keys()]
        idle = {record.fileno(): record for record in kept}
        poll = select.poll()
        for descriptor in idle:
            if descriptor >= 0:  # not closed meanwhile
                poll.register(descriptor, 0)  # a hang-up is always told
        for descriptor, _ in poll.poll(0):
            record = idle[descriptor]
            self._forget(record)
            record.close_local()

    def _keep(self, slot: int, record: SharedRecord) -> None:
        with self._lock:
            old = self._records.get(slot)
            self._records[slot] = record
            self._idle.discard(slot)
        if old is not None:
            old.close_local()

    def _forget(self, record: SharedRecord) -> None:
        slot = record.handle.slot
        with self._lock:
            if self._records.get(slot) is record:
                del self._records[slot]
                self._idle.discard(slot)

    def discard_answer(self, answer: Answer | None) -> None:
        """Have the service ended that an answer grants, and close what came along."""
        close_descriptors(answer)
        if answer is None or answer[0] not in (LENT, START, JOINED):
            return
        if answer[0] != JOINED:
            self.core.discard(answer[1])
            return
        record = self.joined(answer[1])
        if not self.core.release_shared(answer[1], False):
            self.discard(record)  # the others have left the reset to it

    def _discard_handle(self, handle: _core.Handle) -> None:
        """Have a service ended of which there is no record."""
        with contextlib.suppress(Error):  # it ended with the lender
            self.core.discard(handle)


def _forgotten() -> BrokenError:
    """What the lender takes as known was closed here, by a caller that was interrupted."""
    return BrokenError("this program has closed its connection to the service", delivered="no")


def status_of(answer: Answer) -> dict[str, Any]:
    """Sizes and counters by name, and deaths by cause."""
    return {**dict(zip(STATUS_NAMES, answer[1], strict=True)), "deaths": dict(answer[2])}


def close_descriptors(answer: Answer | None) -> None:
    """Close what came along with an answer that nobody takes."""
    if answer is None or answer[0] not in (LENT, START, MET):
        return
    for descriptor in answer[8][:3] if answer[0] == LENT else answer[2:3]:
        if descriptor >= 0:
            os.close(descriptor)


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
