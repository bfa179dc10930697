"""The asyncio face of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.blockio.files.futures import tickets
from forebay.blockio.files.loop_port import enter

if TYPE_CHECKING:
    from forebay import _core
    from forebay.blockio.files.queue import Queue

__all__ = ["AsyncQueue"]


class AsyncQueue:
    """A queue in one event loop; made by `async with Queue(...)`.

    Attributes:
        queue: the queue itself, for files, and for the faces of other threads.

    Threads: that of its loop alone.
    """

    def __init__(self, queue: Queue):
        self.queue = queue
        self._port = enter(queue)
        self._left = False

    @property
    def engine(self) -> str:
        """What carries out operations here: "ring" (io_uring) or "threads"."""
        return self.queue.engine

    @property
    def reason(self) -> str:
        """Why that engine and not the other."""
        return self.queue.reason

    async def run(
        self,
        operations: Any,
        files: _core.BlockFile | list[_core.BlockFile] | tuple[_core.BlockFile, ...],
        buffer: Any,
        *,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any:
        """Carry out any operations; arguments, result and errors are those of `Queue.run`.

        All buffers are lent until this returns, also when it is cancelled: then they are kept until
        the kernel has released them: do not use them before `stats` shows none.

        Cancellation: safe; what was not issued yet is not, what was may be carried out.
        Cost: reads that are in the page cache are done without a switch of tasks.
        """
        ticket = next(tickets)
        batch = self.queue.start(
            self._port.core,
            ticket,
            operations,
            files,
            buffer,
            exact=exact,
            return_errors=return_errors,
            results=results,
        )
        return await self._port.result(ticket, batch)

    def stats(self) -> dict[str, Any]:
        """Tell what the queue has done and holds; see `Queue.stats`."""
        return self.queue.stats()

    async def aclose(self) -> None:
        """Wait for what this loop has in flight, at most five seconds; cancel the rest, and close.

        Idempotent. Closes the queue for all threads, as `Queue.close` does.

        Cancellation: closes at once.
        """
        try:
            if not self._left:
                self._left = True
                await self._port.leave()
        finally:
            self.queue.close()
