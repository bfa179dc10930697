"""What happens to the services of a shared pool: the lender numbers it, and a reader asks on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from forebay._steps import awaited, block
from forebay.errors import ClosedError, Error
from forebay.pool.lend.step import Steps
from forebay.pool.lend.wait import Deadline
from forebay.pool.shared.link import Answer, Link
from forebay.pool.watch.events import Event, Events

if TYPE_CHECKING:
    from forebay.pool.shared.pool import SharedPool

T = TypeVar("T")

NOT_YET = 2**64 - 1
"""The number of an event that does not come: the lender answers it at once with the next number."""


class SharedJournal:
    """The source of one reader of events.

    Events are those of one lender; a reader of one that has ended gets BrokenError.
    """

    def __init__(self, pool: SharedPool) -> None:
        self._pool = pool
        self._link: Link | None = None
        self._ended = False
        self._next = 0
        """The number of the event that the reader wants."""

    def run(self, steps: Steps[T]) -> T:
        """Run a procedure in this thread."""
        return block(steps, self._here())

    async def run_async(self, steps: Steps[T]) -> T:
        """Run a procedure on the running loop."""
        return await awaited(steps, self._here())

    def begin(self, reader: Events) -> Steps[None]:
        """Give the reader events from now on."""
        self._next = yield from self._newest()
        self._here().add_readers(1)

    def more(self, reader: Events, deadline: Deadline) -> Steps[None]:
        """Wait until events wait for the reader, or the deadline passes."""
        if not reader.waiting:
            link = self._here()
            answer = yield from link.ask(link.core.events(self._next), deadline)
            if answer is not None:
                self._take(reader, answer)

    def look(self, reader: Events) -> Steps[None]:
        """Give the reader what has happened so far."""
        if self._ended:
            return
        newest = yield from self._newest()
        while self._next < newest:
            link = self._here()
            answer = yield from link.told(link.core.events(self._next))
            self._take(reader, answer)

    def end(self, reader: Events) -> None:
        """Give the reader nothing any more; with the last one the lender keeps none for it."""
        link, self._link, self._ended = self._link, None, True
        if link is not None and link.add_readers(-1) == 0:
            with contextlib.suppress(Error):  # the lender has ended, or the pool was closed
                link.core.stop_events()

    def _newest(self) -> Steps[int]:
        """The number that the next event will have."""
        link = self._here()
        answer = yield from link.told(link.core.events(NOT_YET))
        number: int = answer[1]
        return number

    def _take(self, reader: Events, answer: Answer) -> None:
        _, self._next, rows = answer
        for at_ms, what, name, pid, slot, generation, cause in rows:
            reader.waiting.append(Event(at_ms / 1000, what, name, pid, (slot, generation), cause))

    def _here(self) -> Any:
        if self._ended:
            raise ClosedError("this reader of events was left; call events() again")
        if self._link is None:
            self._link = self._pool.link()
        return self._link
