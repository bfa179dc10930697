"""The asyncio face of a file.

No procedures of `forebay._steps`: what waits in a thread is the core's, so there are no twins.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.blockio.files.futures import tickets
from forebay.blockio.files.loop_port import enter
from forebay.blockio.files.queue import Queue

if TYPE_CHECKING:
    from forebay.blockio.files.file import BlockFile

__all__ = ["AsyncBlockFile"]


class AsyncBlockFile:
    """A file in one event loop; made by `async with BlockFile(...)`.

    The methods are those of `BlockFile`, awaited: same arguments, results and errors.
    Buffers are lent until the method returns. If it is cancelled they are kept until the kernel
    has released them, because a read of a disk cannot be cancelled; do not use them before
    the queue's `stats` show nothing in quarantine.

    Cancellation: safe for all methods; of a write, any part may have been carried out.
    Cost: what the page cache has is read without a switch of tasks; for the rest there is one
    wake-up for all that are done together.

    Attributes:
        file: the file itself, for the faces of other threads.

    Threads: that of its loop alone.
    """

    def __init__(self, file: BlockFile):
        queue = file.queue
        assert isinstance(queue, Queue), "opened with one"
        self.file = file
        self._port = enter(queue)
        self._left = False

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return self.file.path

    @property
    def size_bytes(self) -> int:
        """Its size in bytes at this moment; each read asks the system."""
        return self.file.size_bytes

    @property
    def alignment(self) -> tuple[int, int]:
        """What addresses, and what offsets and lengths, have to be multiples of, in bytes."""
        return self.file.alignment

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self.file.closed

    def fileno(self) -> int:
        """Return the number of its descriptor, which the file keeps."""
        return self.file.fileno()

    def read_many(
        self,
        offsets: Any,
        out: Any,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Read blocks at `offsets` into consecutive blocks of `out`; see `BlockFile.read_many`."""
        return self._start("read_many", offsets, out, exact, lengths, return_errors, results)

    def write_many(
        self,
        offsets: Any,
        data: Any,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Write consecutive blocks of `data` at `offsets`; see `BlockFile.write_many`."""
        return self._start("write_many", offsets, data, exact, lengths, return_errors, results)

    async def read(self, offset: int, out: Any, *, exact: bool = False) -> int:
        """Read one block at `offset` into `out`; return its bytes. See `BlockFile.read`."""
        return int(await self._start("read", offset, out, exact))

    async def write(self, offset: int, data: Any, *, exact: bool = False) -> int:
        """Write `data` as one block at `offset`; return its bytes. See `BlockFile.write`."""
        return int(await self._start("write", offset, data, exact))

    async def fsync(self) -> None:
        """Have the device keep all that was written before; see `BlockFile.fsync`."""
        await self._start("fsync", None, None)

    async def fdatasync(self) -> None:
        """As `fsync`, but of the metadata only what reading needs."""
        await self._start("fdatasync", None, None)

    async def _start(
        self,
        method: str,
        offset: Any,
        memory: Any,
        exact: bool = False,
        lengths: Any = None,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any:
        ticket = next(tickets)
        batch = self.file.start(
            self._port.core,
            ticket,
            method,
            offset,
            memory,
            lengths=lengths,
            exact=exact,
            return_errors=return_errors,
            results=results,
        )
        return await self._port.result(ticket, batch)

    async def aclose(self) -> None:
        """Close the file; the last user of its queue in this loop also waits for all in flight.

        Waits at most five seconds, then cancels the rest. Idempotent.

        Cancellation: closes at once.
        """
        self.file.close()
        if not self._left:
            self._left = True
            await self._port.leave()
