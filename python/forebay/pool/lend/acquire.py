"""Acquiring a service: one context manager and one procedure for threads and event loops."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Generic, NoReturn

from forebay._steps import awaited, block
from forebay.config import parse_timeout
from forebay.errors import BusyError, ClosedError, DeadlineError
from forebay.pool.lend.borrow import Borrow, Granted
from forebay.pool.lend.lease import AsyncLease, Lease
from forebay.pool.lend.record import Record
from forebay.pool.lend.step import Steps, Until
from forebay.pool.lend.wait import THREADS, Deadline
from forebay.pool.service.spec import S

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.kind import Kind
    from forebay.pool.lend.pool import ServicePool

LENT, START, WAIT, JOINED = range(4)
"""Answers of the core: a service is lent, the caller starts one, waits, or shares one."""

QUIET = 2
"""Of a lent service: settled, but idle for so long that it is pinged before it is used."""

LOOK_S = 1.0
"""Seconds after which a waiting caller looks again for leases that were lost."""


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
        pool, kind = self._pool, self._kind
        handle = pool.core.take(kind.key, THREADS)
        if handle is not None:  # nothing to wait for
            record = pool.taken(handle)
        else:
            record = block(OwnBorrow(pool, kind, self._timeout, THREADS).steps(), pool)
        self._lease = lease = Lease(pool, record)
        if kind.max_leases > 1:
            pool.core.open(record.handle)
        if pool.watchful:
            pool.attend(record)
        return kind.proxy(lease)  # type: ignore[no-any-return]

    def __exit__(self, *_: object) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    async def __aenter__(self) -> Any:
        if self._lease is not None:
            self._refuse()
        pool, kind = self._pool, self._kind
        group = THREADS if kind.max_leases == 1 else pool.waiter().group
        handle = pool.core.take(kind.key, group)
        if handle is not None:  # nothing to wait for
            record = pool.taken(handle)
        else:
            record = await awaited(OwnBorrow(pool, kind, self._timeout, group).steps(), pool)
        self._lease = lease = AsyncLease(pool, record)
        if kind.max_leases > 1:
            pool.core.open(record.handle)
        if pool.watchful:
            pool.attend(record)
        return kind.proxy(lease)

    async def __aexit__(self, *_: object) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.close()

    def _refuse(self) -> NoReturn:
        raise BusyError(
            f"this acquire of {self._kind.name} has been entered and not left; "
            "for a second lease at the same time, call acquire again"
        )


class OwnBorrow(Borrow):
    """One acquire that has to wait, of a pool of this process.

    A ticket that was granted while its caller left goes to the next one. Only an interrupt between
    two instructions of this class itself may take a place of the pool until the pool is closed.
    """

    __slots__ = ("_answer", "_core", "_group", "_pool")

    def __init__(self, pool: ServicePool, kind: Kind, timeout: float | None, group: int) -> None:
        super().__init__(pool, kind, Deadline(timeout))
        self._pool = pool
        self._core = pool.core
        self._group = group
        self._answer: tuple[int, _core.Handle | None, int, int] | None = None

    def steps(self) -> Steps[Record]:
        """Wait until a service is lent; its record."""
        if self._pool.watchful:
            self._pool.look()
        record: Record = yield from self.tries()
        return record

    def _granted(self) -> Steps[Granted]:
        self._answer = self._core.ask(self._kind.key, self._group)
        if self._answer[0] == WAIT:
            yield from self._wait(ticket=self._answer[2], grace_ms=self._answer[3])
        answer, handle, settled, _ = self._answer
        assert handle is not None
        if answer == START:
            return Granted(self._pool.start(self._kind, handle), False, False)
        return Granted(self._pool.taken(handle), bool(settled), settled == QUIET)

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
                    self._pool.look()  # the service of a lost lease may be free then
        except BaseException:
            with contextlib.suppress(ClosedError):  # a closed pool has nothing to give back
                if self._answer is None:
                    self._core.leave(ticket)
                else:
                    self._hand_on(self._answer)
            raise
        if self._answer is None:
            # Before `leave`, which changes what it reports.
            late = yield from self._too_late(waiting=True)
            self._core.leave(ticket)
            raise late

    def _hand_on(self, answer: tuple[int, _core.Handle | None, int, int]) -> None:
        """Give back what was granted while the caller left."""
        handle = answer[1]
        assert handle is not None
        if answer[0] == LENT and answer[2]:
            self._core.release(handle)
        elif answer[0] == JOINED:
            # Where it is the last one, the others have left the reset to it.
            if not self._core.release_shared(handle, False):
                self._pool.discard(self._pool.taken(handle))
        else:
            self._core.discard(handle)

    def _too_late(self, *, waiting: bool) -> Steps[DeadlineError]:
        yield from ()  # the core knows
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
