"""Live copies of a leased service: copy-on-write forks of it, each a service of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from forebay._steps import awaited, block
from forebay.errors import BrokenError, BusyError, DeadlineError
from forebay.pool.lend.record import PythonRecord
from forebay.pool.lend.step import Answer, Settle, Steps
from forebay.pool.lend.wait import Deadline

if TYPE_CHECKING:
    from forebay.pool.lend.lease import Lease
    from forebay.pool.lend.pool import ServicePool


COPIES_ORDERED_MAX = 32
"""Copies that are ordered before the service is told to make them.

Until then an order, with three descriptors, waits in the service's socket, which holds about 270.
"""


class Branches:
    """A context manager that copies a service.

    `with` gives a list of blocking proxies, `async with` one of asyncio ones.
    Each copy has the state that the original had, and a lease of its own; they end with the block,
    or one by one with `copy.lease.close()`. The original goes on, and may be given back earlier.
    More than `COPIES_ORDERED_MAX` copies take several calls, and calls of other threads on the
    lease may run between these.
    If copying fails, the original may still hold orders for copies that nobody waits for: it is
    ended with its lease, not lent again.
    """

    __slots__ = (
        "_count",
        "_faces",
        "_lease",
        "_leases",
        "_pool",
        "_record",
        "_same_seed",
        "_timeout",
    )

    def __init__(
        self,
        lease: Lease,
        faces: tuple[type[Lease], type[Lease]],
        pool: ServicePool,
        record: PythonRecord,
        *,
        count: int,
        same_seed: bool,
        timeout: float | None,
    ) -> None:
        self._lease = lease
        self._faces = faces
        self._pool = pool
        self._record = record
        self._count = count
        self._same_seed = same_seed
        self._timeout = timeout
        self._leases: list[Lease] | None = None

    def __enter__(self) -> list[Any]:
        self._expect_left()
        return self._entered(block(self._steps(), self._pool), self._faces[0])

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> list[Any]:
        self._expect_left()
        return self._entered(await awaited(self._steps(), self._pool), self._faces[1])

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all copies. Idempotent; never waits."""
        leases, self._leases = self._leases, None
        for lease in leases or ():
            lease.close()

    def _expect_left(self) -> None:
        if self._leases is not None:
            raise BusyError("these copies have been made; for others, call fork again")

    def _entered(self, copies: Iterable[PythonRecord], face: type[Lease]) -> list[Any]:
        self._leases = [face(self._pool, copied) for copied in copies]
        return [self._record.kind.proxy(lease) for lease in self._leases]

    def _steps(self) -> Steps[list[PythonRecord]]:
        """Order the copies, tell the original to fork, and wait until each has answered."""
        deadline = Deadline(self._timeout)
        record, copies = self._record, list[PythonRecord]()
        waited = record
        try:
            with self._lease.lent():
                while len(copies) < self._count:
                    yield from self._order(copies, deadline)
            for waited in copies:
                yield Settle(waited, deadline.left())
                yield from self._pool.learn_process(waited, deadline)
        except DeadlineError:
            self._discard(copies)
            raise DeadlineError(
                f"service {record.kind.name} (process {record.pid}) was not copied {self._count}"
                f" times within {self._timeout:g} s; raise timeout, or ask for fewer copies",
                timeout=self._timeout,
            ) from None
        except (BrokenError, OSError) as error:
            try:
                name = f"{record.kind.name}, being copied,"
                told = yield from self._pool.explain(waited.handle, name, error)
            finally:
                self._discard(copies)
            raise told from None
        except BaseException:
            self._discard(copies)
            raise
        return copies

    def _order(self, copies: list[PythonRecord], deadline: Deadline) -> Steps[None]:
        """Order some of the copies, and have the original make them."""
        record, channel = self._record, self._record.channel
        before = len(copies)
        count = min(self._count - before, COPIES_ORDERED_MAX)
        try:
            while len(copies) < before + count:
                copies.append((yield from self._pool.branch(record, deadline)))
            channel.generation = record.handle.tag
            call = channel.begin("@fork", (count, self._same_seed))
            yield Answer(channel, call, deadline.left())
        except BaseException:
            if len(copies) > before:
                self._lease.discard()  # its next holder's fork would take the orders that are left
            raise

    def _discard(self, copies: Iterable[PythonRecord]) -> None:
        for copied in copies:
            self._pool.discard(copied)
