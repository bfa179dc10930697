"""Reading what a service writes, while it writes it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Self

from forebay._steps import awaited, block
from forebay.errors import BrokenError, ClosedError, StaleError
from forebay.pool.lend.step import Steps

if TYPE_CHECKING:
    from forebay import _core
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.watch.death import Told

LOOK_AGAIN = 1.0
"""Seconds after which a follower checks whether its lease has ended, which nobody reports to it."""


class Output(NamedTuple):
    """What a service wrote beyond the bytes that were seen, or how it ended."""

    written: tuple[int, bytes] | None = None
    """How many bytes it has written in all, and the newest of them; None: no more than seen."""
    death: Told | None = None
    """How it ended, if it did."""


class NewOutput:
    """Looks for what a service of this program's pool wrote, or how it ended."""

    __slots__ = ("_core", "_handle", "_seen", "told")

    def __init__(self, core: _core.Pool, handle: _core.Handle, seen: int) -> None:
        self._core = core
        self._handle = handle
        self._seen = seen
        self.told = Output()

    def found(self, queue: _core.WakeQueue) -> bool:
        """Look for it; `queue` is told when it pays to look again."""
        # The death is read first: the last output came before the end.
        death = self._core.death(self._handle, queue)
        self.told = Output(self._core.written(self._handle, self._seen, queue), death)
        return self.told != Output()


class Follow:
    """The lines that a service writes to stdout and stderr, those that are kept first.

    `for` waits for the next line in this thread, `async for` on the running loop.
    It ends with the lease or with the service, after the last line.
    If lines come faster than they are read, the oldest are lost: 16 KiB are kept, and no part of a
    line is given if another part of it is lost.
    One thread or task iterates it; several may follow one service.
    """

    __slots__ = ("_ended", "_handle", "_lines", "_pool", "_rest", "_seen", "_torn")

    def __init__(self, pool: ServicePool, handle: _core.Handle) -> None:
        self._pool = pool
        self._handle = handle
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._torn = False  # what comes next belongs to a line whose beginning is lost
        self._seen = 0
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        """Wait for a line. Signal handlers run meanwhile."""
        while not self._lines and not self._ended:
            block(self._look(), self._pool)
        if not self._lines:
            raise StopIteration
        return self._take()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """Wait for a line. Cancellation: safe, nothing is lost."""
        while not self._lines and not self._ended:
            await awaited(self._look(), self._pool)
        if not self._lines:
            raise StopAsyncIteration
        return self._take()

    def _take(self) -> str:
        return self._lines.popleft().decode(errors="replace")

    def _look(self) -> Steps[None]:
        """Wait until there is more, or nothing will come any more."""
        try:
            told = yield from self._pool.written(self._handle, self._seen)
        except (StaleError, ClosedError, BrokenError):  # the lease, the pool or the keeper ended
            self._end()
            return
        if told.written is not None:
            self._keep(*told.written)
        elif told.death is not None and self._seen == 0:  # nobody had followed it
            self._keep(len(told.death[3]), told.death[3])
        if told.death is not None:
            self._end()

    def _keep(self, total: int, newest: bytes) -> None:
        unseen = total - self._seen
        self._seen = total
        fresh = newest[-unseen:] if unseen < len(newest) else newest
        if unseen > len(newest):
            self._rest, self._torn = b"", True
        if self._torn:
            _, newline, fresh = fresh.partition(b"\n")
            self._torn = not newline
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        self._lines.extend(lines)

    def _end(self) -> None:
        self._ended = True
        if self._rest:
            self._lines.append(self._rest)
            self._rest = b""
