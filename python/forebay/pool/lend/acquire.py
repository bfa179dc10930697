"""Acquiring a service: one context manager and one procedure for threads and event loops."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from forebay.config import parse_timeout
from forebay.errors import (
    BrokenError,
    BusyError,
    ClosedError,
    DeadlineError,
    RemoteError,
)
from forebay.pool.lend.lease import AsyncLease, Lease
from forebay.pool.lend.record import Record
from forebay.pool.lend.step import Settle, Steps, Until, awaited, block
from forebay.pool.lend.unsettled import TRIES, exhausted, handle_failure, leave
from forebay.pool.lend.wait import Deadline
from forebay.pool.service.spec import S

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.kind import Kind
    from forebay.pool.lend.pool import ServicePool

LENT, START, WAIT = range(3)
"""Answers of the core: a service is lent, the caller starts one, the caller waits."""

QUIET = 2
"""Of a lent service: settled, but idle for so long that it is pinged before it is used."""

LOOK_S = 1.0
"""Seconds after which a waiting caller looks again for leases that were lost."""

_log = logging.getLogger(__name__)


class Acquire(Generic[S]):
    """A context manager that acquires a service.

    `with` gives a blocking proxy, `async with` one whose methods are coroutines.
    May be entered again once it was left; until then that raises BusyError.
    """

    __slots__ = ("_kind", "_lease", "_pool", "_timeout")

    def __init__(self, pool: ServicePool, kind: Kind, timeout: str | float | None) -> None:
        self._pool = pool
        self._kind = kind
        self._timeout = parse_timeout(timeout) if isinstance(timeout, str) else timeout
        self._lease: Lease | None = None

    def __enter__(self) -> S:
        if self._lease is not None:
            self._refuse()
        pool = self._pool
        handle = pool.core.take(self._kind.key)
        if handle is not None:  # nothing to wait for
            record = pool.taken(handle)
        else:
            record = block(pool, Borrow(pool, self._kind, self._timeout).steps())
        self._lease = lease = Lease(pool, record)
        if pool.watchful:
            pool.attend(record)
        return self._kind.proxy(lease)  # type: ignore[no-any-return]

    def __exit__(self, *_: object) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    async def __aenter__(self) -> Any:
        if self._lease is not None:
            self._refuse()
        pool = self._pool
        kind = self._kind if self._kind.max_leases == 1 else pool.on_loop(self._kind)
        handle = pool.core.take(kind.key)
        if handle is not None:  # nothing to wait for
            record = pool.taken(handle)
        else:
            record = await awaited(pool, Borrow(pool, kind, self._timeout).steps())
        self._lease = lease = AsyncLease(pool, record)
        if pool.watchful:
            pool.attend(record)
        return self._kind.proxy(lease)

    async def __aexit__(self, *_: object) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def _refuse(self) -> NoReturn:
        raise BusyError(
            f"this acquire of {self._kind.name} has been entered and not left; "
            "for a second lease at the same time, call acquire again"
        )


class Borrow:
    """One acquire that has to wait.

    If it ends early (deadline, cancellation, Ctrl-C), the pool is as if it had not asked: a granted
    ticket goes to the next caller, and a service that is starting completes its start and is lent
    to the next caller. Only an interrupt between two instructions of this class itself may take a
    place of the pool until the pool is closed.
    """

    __slots__ = ("_answer", "_core", "_deadline", "_kind", "_pool")

    def __init__(self, pool: ServicePool, kind: Kind, timeout: float | None) -> None:
        self._pool = pool
        self._core = pool.core
        self._kind = kind
        self._deadline = Deadline(timeout)
        self._answer: tuple[int, _core.Handle | None, int, int] | None = None

    def steps(self) -> Steps[Record]:
        """Wait until a service is lent; its record."""
        if self._pool.watchful:
            self._pool.watched.look()
        for attempt in range(1, TRIES + 1):
            self._answer = self._core.ask(self._kind.key)
            if self._answer[0] == WAIT:
                yield from self._wait(ticket=self._answer[2], grace_ms=self._answer[3])
            answer, handle, settled, _ = self._answer
            assert handle is not None
            try:
                record = self._take(answer, handle)
            except BrokenError:
                if attempt == TRIES:
                    raise
                continue  # the keeper was lost meanwhile; the next try starts another
            try:
                quiet = settled == QUIET and record.begin_ping()
            except (BrokenError, OSError):
                self._pool.discard(record)
                continue  # it ended while it was idle
            if settled and not quiet:
                return record
            try:
                settled = yield from self._settle(record, last=attempt == TRIES, quiet=quiet)
            except ClosedError:
                record.close()
                raise
            if settled:
                if self._kind.max_leases > 1:
                    self._core.open(record.handle)
                return record
        raise exhausted(self._pool, self._kind.name)

    def _take(self, answer: int, handle: _core.Handle) -> Record:
        if answer == START:
            return self._pool.start(self._kind, handle)
        return self._pool.taken(handle)

    def _wait(self, ticket: int, grace_ms: int) -> Steps[None]:
        """Wait until the ticket is granted.

        It waits at most `grace_ms` for services that are being reset, then has one started.
        """
        self._answer = None

        def granted(queue: _core.WakeQueue) -> bool:
            self._answer = self._core.collect(ticket)
            if self._answer is None:
                self._core.await_on(ticket, queue)
            return self._answer is not None

        try:
            if grace_ms:
                yield Until(granted, self._deadline.within(grace_ms / 1000))
                if self._answer is None:
                    self._core.hurry(ticket)
            while self._answer is None and not self._deadline.passed():
                yield Until(granted, self._deadline.within(LOOK_S))
                if self._pool.watchful:
                    self._pool.watched.look()  # the service of a lost lease may be free then
        except BaseException:
            with contextlib.suppress(ClosedError):  # a closed pool has nothing to give back
                if self._answer is None:
                    self._core.leave(ticket)
                else:
                    self._hand_on(self._answer)
            raise
        if self._answer is None:
            late = self._too_late(waiting=True)  # before `leave`, which changes what it reports
            self._core.leave(ticket)
            raise late

    def _hand_on(self, answer: tuple[int, _core.Handle | None, int, int]) -> None:
        """Give back what was granted while the caller left."""
        handle = answer[1]
        if answer[0] == LENT and handle is not None and answer[2]:
            if self._kind.max_leases == 1 or not self._core.release_shared(handle, False):
                self._core.release(handle)
        elif handle is not None:
            self._core.discard(handle)

    def _settle(self, record: Record, *, last: bool, quiet: bool) -> Steps[bool]:
        """Take the answer that the service owes. False: it failed, and another should be tried."""
        starting = record.starting
        reset_timeout = self._pool.config.reset_timeout
        deadline = self._deadline.within(reset_timeout) if quiet else self._deadline
        try:
            yield Settle(record, deadline.left())
            if starting:
                yield from self._pool.learn_process(record, self._deadline)
        except DeadlineError:
            if quiet and not self._deadline.passed():
                self._pool.discard(record)
                _log.warning(
                    "service %s (process %d) did not answer within %g s after it was idle and is"
                    " replaced",
                    self._kind.name,
                    record.pid,
                    reset_timeout,
                )
                return False
            late = self._too_late(waiting=False)
            leave(self._pool, record, starting=starting)
            raise late from None
        except (RemoteError, BrokenError, OSError) as error:
            yield from handle_failure(self._pool, record, error, last=last, starting=starting)
            return False
        except BaseException:
            leave(self._pool, record, starting=starting)
            raise
        if record.found:
            self._pool.discard(record, "contaminated")
            _log.error(
                "service %s (process %d) is contaminated: after its reset these are not as in a new"
                " one: %s; it was ended. Let reset() restore them, or name them in canary_ignores",
                self._kind.name,
                record.pid,
                ", ".join(record.found),
            )
            return False
        return True

    def _too_late(self, *, waiting: bool) -> DeadlineError:
        stats = self._pool.stats()
        maximum, timeout = stats["max_size"], self._deadline.timeout
        others = stats["waiters"] - waiting
        return DeadlineError(
            f"pool {self._pool.name!r}: no {self._kind.name} was free within {timeout:g} s: "
            f"of at most {maximum} services {stats['leased']} are leased"
            f"{self._pool.watched.holders()}, {stats['starting']} being started and"
            f" {stats['settling']} being reset, and {others} other callers wait; "
            f"raise max_size ({maximum}) or timeout ({timeout:g} s)",
            timeout=timeout,
        )
