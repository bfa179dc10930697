"""What happens to the services of a pool, as a stream."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeVar

from forebay._steps import awaited, block
from forebay.errors import ClosedError, Error
from forebay.pool.lend.step import Until
from forebay.pool.lend.wait import Deadline

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.lend.step import Steps

T = TypeVar("T")

WAITING_MAX = 4096
"""Events that wait for one reader; beyond that the oldest are dropped."""

_log = logging.getLogger("forebay.pool.events")


class Event(NamedTuple):
    """One thing that happened to a service.

    Attributes:
        at: seconds since 1970.
        what: `start`, `lease`, `release` (it is idle), `reset` (it is being reset), `end` (it is
            being ended by the pool) or `death` (it has ended).
        service: the name of its kind.
        pid: its process; 0 where that is not known yet.
        lease: its place in the pool and the generation of the lease.
        cause: of an end or a death.
    """

    at: float
    what: Literal["start", "lease", "release", "reset", "end", "death"]
    service: str
    pid: int
    lease: tuple[int, int]
    cause: str | None


class Events:
    """A reader of what happens in a pool, from when it is entered until it is left.

    Iterating, also with `async for`, waits for the next event, and ends when the pool is closed.
    Deaths of idle services are noticed while a thread or loop uses the pool or reads its events.

    Example:
        >>> import forebay
        >>> with forebay.ServicePool(max_size=1) as pool, pool.events() as events:
        ...     list(events.taken())
        []
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.waiting: deque[Event] = deque(maxlen=WAITING_MAX)

    def __enter__(self) -> Self:
        self._source.run(self._source.begin(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._source.end(self)

    async def __aenter__(self) -> AsyncEvents:
        self._awaited = AsyncEvents(self._source)
        await self._source.run_async(self._source.begin(self._awaited))
        return self._awaited

    async def __aexit__(self, *_: object) -> None:
        self._source.end(self._awaited)

    def taken(self) -> Iterator[Event]:
        """The events that were not read yet; waits for none."""
        with contextlib.suppress(ClosedError):
            self._source.run(self._source.look(self))
        while self.waiting:
            yield self.waiting.popleft()

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None where none came within `timeout` seconds.

        Raises:
            ClosedError: the pool was closed.
            BrokenError: the lender of a shared pool has ended.
        """
        return self._source.run(self._steps(timeout))

    def __iter__(self) -> Iterator[Event]:
        try:
            while (event := self.next()) is not None:
                yield event
        except ClosedError:
            yield from self.waiting

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while (event := await self._source.run_async(self._steps(None))) is not None:
                yield event
        except ClosedError:
            for event in self.waiting:
                yield event

    def _steps(self, timeout: float | None) -> Steps[Event | None]:
        yield from self._source.more(self, Deadline(timeout))
        return self.waiting.popleft() if self.waiting else None


class AsyncEvents(Events):
    """What `async with pool.events()` gives: the same reader, with `next` to be awaited."""

    async def next(self, timeout: float | None = None) -> Event | None:  # type: ignore[override]
        """The next event; None where none came within `timeout` seconds.

        Raises:
            ClosedError: the pool was closed.
            BrokenError: the lender of a shared pool has ended.

        Cancellation: safe, nothing is lost.
        """
        return await self._source.run_async(self._steps(timeout))


class Source(Protocol):
    """Where a reader gets its events from: a pool, or the lender of a shared one."""

    def run(self, steps: Steps[T]) -> T:
        """Run a procedure in this thread."""

    async def run_async(self, steps: Steps[T]) -> T:
        """Run a procedure on the running loop."""

    def begin(self, reader: Events) -> Steps[None]:
        """Give the reader events from now on."""

    def more(self, reader: Events, deadline: Deadline) -> Steps[None]:
        """Wait until events wait for the reader, or the deadline passes."""

    def look(self, reader: Events) -> Steps[None]:
        """Give the reader what has happened so far."""

    def end(self, reader: Events) -> None:
        """Give the reader nothing any more."""


class Journal:
    """Gives the events of a pool to its readers, and to `logging` if that is at DEBUG."""

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._readers: list[Events] = []
        self._logs = _log.isEnabledFor(logging.DEBUG)
        if self._logs:
            pool.core.keep_notes(True)

    @property
    def logs(self) -> bool:
        """Whether events are logged."""
        return self._logs

    def run(self, steps: Steps[T]) -> T:
        """Run a procedure in this thread."""
        return block(steps, self._pool)

    async def run_async(self, steps: Steps[T]) -> T:
        """Run a procedure on the running loop."""
        return await awaited(steps, self._pool)

    def begin(self, reader: Events) -> Steps[None]:
        """Give the reader events from now on."""
        yield from ()
        with self._lock:
            self._readers.append(reader)
            self._pool.core.keep_notes(True)

    def more(self, reader: Events, deadline: Deadline) -> Steps[None]:
        """Wait until events wait for the reader, or the deadline passes."""

        def there(queue: _core.WakeQueue) -> bool:
            self.collect(queue)
            return bool(reader.waiting)

        yield Until(there, deadline)

    def look(self, reader: Events) -> Steps[None]:
        """Give the readers what has happened so far."""
        yield from ()
        self.collect()

    def end(self, reader: Events) -> None:
        """Give the reader nothing any more."""
        with self._lock:
            if reader in self._readers:
                self._readers.remove(reader)
            if not self._readers and not self._logs:
                with contextlib.suppress(Error):  # closed, or a forked child's: it keeps none
                    self._pool.core.keep_notes(False)

    def collect(self, queue: _core.WakeQueue | None = None) -> None:
        """Take events and give them on; if there are none, `queue` is notified of later ones."""
        with self._lock:
            events = [self._event(*note) for note in self._pool.core.take_notes(queue)]
            for reader in self._readers:
                reader.waiting.extend(events)
        if self._logs:  # not under the lock: a handler may read the pool's events
            for event in events:
                self._log(event)

    def close(self) -> None:
        """Give on the last events before the pool is closed."""
        if self._readers or self._logs:
            with contextlib.suppress(Error):
                self.collect()

    def forked(self) -> None:
        """In a forked child: the readers are the parent's."""
        self._lock = threading.Lock()  # another thread may have held it
        self._readers.clear()
        self._logs = False

    def _event(
        self, at_ms: int, what: Any, key: int, pid: int, slot: int, generation: int, cause: Any
    ) -> Event:
        name = self._pool.kind_name(key)
        return Event(at_ms / 1000, what, name, pid, (slot, generation), cause)

    def _log(self, event: Event) -> None:
        _log.debug(
            "pool %r: %s of %s (process %d), lease %d/%d%s",
            self._pool.name,
            event.what,
            event.service,
            event.pid,
            *event.lease,
            f": {event.cause}" if event.cause else "",
        )
