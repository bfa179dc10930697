"""The asyncio face of a record file.

`sample` is no procedure of `forebay._steps`: of its 16 lines `RecordFile` has the loop alone, too,
and both its waits need a function for each face.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, SupportsIndex

from forebay._numpy import Array, np
from forebay.blockio.records.group import Append
from forebay.blockio.records.input import numbers_of
from forebay.blockio.records.sampler import ABANDONED_S, DRAWS_MAX, CrowdedError
from forebay.errors import StaleError

if TYPE_CHECKING:
    import numpy.typing as npt

    from forebay.blockio.records.append import Appender
    from forebay.blockio.records.file import RecordFile
    from forebay.blockio.records.read import Read

__all__ = ["AsyncRecordFile"]


class AsyncRecordFile:
    """A record file for the tasks of one event loop. Made by `async with RecordFile(...)`.

    Attributes:
        file: the blocking face, for everything that does not wait: its `dtype`, `first`, `refresh`.
    """

    def __init__(self, file: RecordFile) -> None:
        self.file = file
        self._threads: ThreadPoolExecutor | None = None
        self._commit_is_queued = False

    def __len__(self) -> int:
        """Records in the window, as of the last refresh or own append."""
        return len(self.file)

    def refresh(self) -> int:
        """As `RecordFile.refresh`; it does not wait."""
        return self.file.refresh()

    async def append(self, records: npt.ArrayLike) -> int:
        """Append as `RecordFile.append`; tasks that append at once share syncs.

        Cancellation: an append that is not being written is taken back; one that is, is committed
        all the same.
        """
        appender, rows = self.file._prepare(records)
        if not len(rows):
            return self.file.appended
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        append = Append(rows, future, loop)
        appender.enter(append)
        self._commit_soon(appender)
        try:
            return await future
        except asyncio.CancelledError:
            appender.withdraw(append)
            raise

    async def gather(self, indices: npt.ArrayLike, out: Array | None = None) -> Array:
        """Read as `RecordFile.gather`; with `out` there is a copy.

        Cancellation: safe; memory goes back once the kernel has released it.
        """
        file = self.file
        file._check()
        numbers = numbers_of(indices, *file._window(), file.path)
        if out is not None:
            file._reader.check_out(numbers, out)
        batch = await self._read(file._plan(numbers))
        if out is None:
            return batch
        np.copyto(out, batch)
        return out

    async def sample(
        self, n: SupportsIndex, *, rng: np.random.Generator | None = None, prefetch: int = 2
    ) -> Array:
        """Draw as `RecordFile.sample`; both faces give the same batches.

        Cancellation: safe; the generator is where it would be, had the batch been returned.
        """
        for left in reversed(range(DRAWS_MAX)):
            try:
                return await self._read(await self._draw(n, rng, prefetch))
            except StaleError:
                if not left:
                    raise
                self.file.refresh()
        raise AssertionError("the last draw returns or raises")

    async def aclose(self) -> None:
        """Close it as `RecordFile.close`. Idempotent.

        Cancellation: it is closed all the same.
        """
        threads = self._get_threads()
        try:
            # It waits for a commit that is under way; a cancelled wait must not take it back.
            closing = threads.submit(self.file.close)
            await asyncio.shield(asyncio.wrap_future(closing))
        finally:
            self._threads = None
            threads.shutdown(wait=False)

    async def _draw(self, n: SupportsIndex, rng: np.random.Generator | None, prefetch: int) -> Read:
        try:
            return self.file._draw(n, rng=rng, prefetch=prefetch)
        except CrowdedError as crowded:
            reads = [asyncio.wrap_future(read) for read in crowded.reads]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), ABANDONED_S)
        return self.file._draw(n, rng=rng, prefetch=prefetch)

    async def _read(self, read: Read) -> Array:
        reader = self.file._reader
        if read.future is None:
            reader.begin(read)
        assert read.future is not None, "a read that was begun has a future"
        await asyncio.wrap_future(read.future)
        return reader.finish(read)

    def _commit_soon(self, appender: Appender) -> None:
        """Have a thread commit what is queued when this turn of the loop is over."""
        if not self._commit_is_queued:
            self._commit_is_queued = True
            # All tasks that append in this turn share the group.
            asyncio.get_running_loop().call_soon(self._start_commit, appender)

    def _start_commit(self, appender: Appender) -> None:
        if not self.file.closed:
            self._get_threads().submit(self._commit, appender)

    def _commit(self, appender: Appender) -> None:
        # First the flag: what is queued from here on finds it down, and has another one begun.
        self._commit_is_queued = False
        appender.drain()

    def _get_threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="forebay-records")
        return self._threads
