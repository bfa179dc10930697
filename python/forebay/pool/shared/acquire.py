"""Acquiring a service of a shared pool: one procedure for threads and event loops."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

from forebay._steps import awaited, block
from forebay.errors import BrokenError, DeadlineError
from forebay.pool.lend.acquire import Acquire
from forebay.pool.lend.borrow import Borrow, Granted
from forebay.pool.lend.lease import AsyncLease, Lease
from forebay.pool.lend.step import Steps
from forebay.pool.lend.wait import THREADS, Deadline
from forebay.pool.programs.backend import ProgramAcquire
from forebay.pool.service.spec import S
from forebay.pool.shared.link import (
    ANSWER_AT_ONCE_WAIT,
    JOINED,
    LENT,
    START,
    Answer,
    Link,
    check,
    status_of,
)

if TYPE_CHECKING:
    from forebay.pool.shared.kind import SharedCommandKind, SharedKind
    from forebay.pool.shared.pool import SharedPool
    from forebay.pool.shared.record import SharedRecord

THREAD_PATIENCE = 0.001
"""Seconds that a thread waits for an answer before it runs `steps`, which costs 20 us more."""

LOOP_PATIENCE = 0.00002
"""The same for an event loop: as long as a thread of the transport spins before it sleeps."""

NO_LINK = cast("Any", None)
"""In place of the link of an acquire that was not entered."""

NOT_BEGUN = cast("Any", None)
"""In place of the deadline of an acquire that has not had to wait."""

HOLDERS_TOLD = 5
"""The number of programs that a message names; it names those that hold most services."""


class SharedAcquire(Acquire[S]):
    """A context manager that acquires a service of a shared pool; used as `Acquire`."""

    __slots__ = ("_shared",)

    _kind: Any
    _pool: Any
    """The link, which lends as a pool does; none until it is entered."""

    def __init__(self, shared: SharedPool, kind: Any, timeout: str | float | None) -> None:
        super().__init__(NO_LINK, kind, timeout)
        self._shared = shared

    def __enter__(self) -> S:
        borrow = self._begin(THREAD_PATIENCE, on_loop=False)
        if borrow.record is None:
            block(borrow.steps(), self._pool)
        return self._lent(Lease, borrow)  # type: ignore[no-any-return]

    async def __aenter__(self) -> Any:
        borrow = self._begin(LOOP_PATIENCE, on_loop=True)
        if borrow.record is None:
            await awaited(borrow.steps(), self._pool)
        return self._lent(AsyncLease, borrow)

    def _begin(self, patience: float, *, on_loop: bool) -> SharedBorrow:
        if self._lease is not None:
            self._refuse()
        link, kind = self._shared.link(), self._kind
        if link.watchful:
            link.look()
        borrow = SharedBorrow(link, kind, self._timeout, on_loop=on_loop)
        try:
            borrow.at_once(patience)
        except BrokenError:
            # The lender of this link has ended; another one may have been started since.
            borrow = SharedBorrow(self._shared.link(), kind, self._timeout, on_loop=on_loop)
        self._pool = borrow.link
        return borrow

    def _lent(self, made: type[Lease], borrow: SharedBorrow) -> Any:
        link, kind, record = borrow.link, self._kind, borrow.record
        self._lease = lease = made(self._pool, record)
        if kind.max_leases > 1:
            link.open(record)
        if link.watchful:
            link.attend(record)
        if link.terms.min_idle:
            self._shared.keep_as_told(kind, link.terms.min_idle)
        return kind.proxy(lease)


class SharedProgramAcquire(ProgramAcquire, SharedAcquire[Any]):
    """The same for a program: its client is made first, as `ProgramAcquire` says."""

    __slots__ = ()


class SharedBorrow(Borrow):
    """One acquire over one connection."""

    __slots__ = ("_asked", "_group", "_timeout", "link", "record")

    def __init__(
        self,
        link: Link,
        kind: SharedKind | SharedCommandKind,
        timeout: float | None,
        *,
        on_loop: bool,
    ) -> None:
        super().__init__(link, kind, NOT_BEGUN)
        self.link = link
        self.record: Any = None
        """The service, once it is lent."""
        self._timeout = timeout
        self._group = link.waiter().group if on_loop and kind.max_leases > 1 else THREADS
        self._asked: int | Answer | None = None
        """A question on its way, or its answer."""

    def at_once(self, patience: float) -> None:
        """Ask, and take an idle service if the answer names one that this program knows."""
        key = self.link.keys.get(self._kind.digest)
        if key is None:
            if self.link.core.over:
                raise BrokenError("the lender is gone")
            return
        timeout = self._timeout
        asked = self.link.core.take(
            key, patience if timeout is None or timeout > patience else timeout, self._group
        )
        if type(asked) is tuple and asked[0] == JOINED:
            self.record = self.link.joined(asked[1])
            return
        # Its process is known, it owes no answer, and is not to be asked for one.
        if type(asked) is tuple and asked[0] == LENT and asked[2] and not (asked[3] or asked[6]):
            with contextlib.suppress(BrokenError):  # it has ended; `steps` asks for another
                self.record = self.link.taken(self._kind, asked)
            return
        self._asked = asked

    def steps(self) -> Steps[None]:
        """Wait until a service is lent, and set `record` to it."""
        self._deadline = Deadline(self._timeout)
        self.record = yield from self.tries()

    def _granted(self) -> Steps[Granted]:
        asked, self._asked = self._asked, None
        if asked is None:
            key = yield from self.link.key(self._kind, self._deadline)
            if key is None:
                raise (yield from self._too_late(waiting=True))
            asked = self.link.core.take(key, 0.0, self._group)
        if type(asked) is tuple:
            answer = check(asked)
        else:
            assert isinstance(asked, int)
            told = yield from self.link.ask(asked, self._deadline, at_once=True)
            if told is None:
                raise (yield from self._too_late(waiting=True))
            answer = told
        record: SharedRecord
        if answer[0] == START:
            record = yield from self.link.start(self._kind, answer, self._deadline)
            return Granted(record, False, False)
        if answer[0] == JOINED:
            return Granted(self.link.joined(answer[1]), True, False)
        record = self.link.taken(self._kind, answer)
        return Granted(record, not (record.starting or record.owing), answer[6])

    def _too_late(self, *, waiting: bool) -> Steps[DeadlineError]:
        """The error that says why no service was free, with the holders that the lender reports."""
        core, wait = self.link.core, Deadline(ANSWER_AT_ONCE_WAIT)
        status = yield from self.link.ask(core.status(), wait)
        rows = yield from self.link.ask(core.services(0), wait)
        timeout = self._timeout
        start = f"pool {self.link.name!r}: no {self._kind.name} was free within {timeout} s: "
        if status is None or rows is None:
            return DeadlineError(
                f"{start}the lender does not answer; see whether its process is stopped"
                " (forebay serve), or raise the timeout",
                timeout=timeout,
            )
        stats = status_of(status)
        return DeadlineError(
            f"{start}of at most {stats['max_size']} services {stats['leased']} are leased, "
            f"{stats['starting']} being started and {stats['settling']} being reset, "
            f"{stats['waiters']} other callers wait, and this program "
            f"holds {stats['held']} of at most {stats['max_leases']}{_holders(rows[1])}; raise "
            f"--max-size ({stats['max_size']}) of forebay serve or the timeout ({timeout} s), or "
            "see: forebay pool leases",
            timeout=timeout,
        )


def _holders(rows: list[tuple[Any, ...]]) -> str:
    """The programs that hold services, and for how long: those that hold most first."""
    held: dict[int, list[float]] = {}
    for _, _, _, _, holder, age_s in rows:
        if holder:
            held.setdefault(holder, []).append(age_s)
    most = sorted(held.items(), key=lambda item: (-len(item[1]), item[0]))[:HOLDERS_TOLD]
    told = (f"process {pid} holds {len(ages)} (for {max(ages):.1f} s)" for pid, ages in most)
    return "".join(f"; {one}" for one in told)
