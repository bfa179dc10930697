"""Queues: what carries out batches of block operations."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from forebay import _core
from forebay._usage import Figure, tell_by
from forebay.blockio.files.futures import Futures
from forebay.configuration import find_configuration

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable

    from forebay.blockio.files.async_queue import AsyncQueue
    from forebay.blockio.files.loop_port import LoopPort
    from forebay.memory import Arena

__all__ = ["Queue"]


class Queue(_core.BlockQueue):
    """Carries out batches of block operations, for all threads of a process and for event loops.

    Each thread that calls `run` has a ring of its own, an event loop another one; `submit` hands
    over to one I/O thread. Where io_uring is not available, threads take their place; `engine`
    and `reason` say so. All of it is made when it is first needed, and again in a forked child.

    Threads: any. `with` closes at the end; `async with` gives the asyncio face, `AsyncQueue`.

    Args:
        max_batch: operations that one system call hands to the kernel, 1 to 32767; default 64.
        max_concurrency: operations in flight per ring, at least `max_batch`, at most 65535;
            default 192.
        engine: "ring", "threads", or "auto": a ring where the kernel allows one.
        threads: operations in flight where there is no ring, 1 to 1024; default 32.
        max_quarantine_bytes: memory of cancelled operations that the kernel may still write;
            above it new batches are refused. As text such as "64MiB" or in bytes; default 64 MiB.
        arena: memory to register with the kernel, see `attach`.
        io_thread: have event loops hand over to the I/O thread rather than use a ring of theirs,
            for loops that are busy with other work.

    What is left out comes from the configuration (`FOREBAY_BLOCKIO_...`, `forebay.toml`).

    Raises:
        ConfigError: a setting is wrong, or there is no ring and `engine` is "ring".
        ClosedError: the arena is closed.
    """

    __slots__ = ("_entered", "_futures", "_io_thread", "_loops")

    _entered: dict[AbstractEventLoop, list[AsyncQueue]]
    _futures: Futures
    _io_thread: bool
    _loops: dict[AbstractEventLoop, LoopPort]

    def __new__(
        cls,
        *,
        max_batch: int | None = None,
        max_concurrency: int | None = None,
        engine: str | None = None,
        threads: int | None = None,
        max_quarantine_bytes: str | int | None = None,
        arena: Arena | None = None,
        io_thread: bool = False,
    ) -> Self:
        """Make a queue; costs no ring and no thread yet."""
        config = find_configuration(
            {
                "blockio.max_batch": max_batch,
                "blockio.max_concurrency": max_concurrency,
                "blockio.engine": engine,
                "blockio.threads": threads,
                "blockio.max_quarantine_bytes": max_quarantine_bytes,
            }
        ).blockio
        queue = super().__new__(
            cls,
            batch_limit=config.max_batch,
            concurrency_limit=config.max_concurrency,
            engine=config.engine,
            threads=config.threads,
            quarantine_bytes_max=config.max_quarantine_bytes,
        )
        queue._entered = {}
        queue._io_thread = io_thread
        queue._forget()
        if arena is not None:
            queue.attach(arena)
        return queue

    def submit(
        self,
        operations: Any,
        files: _core.BlockFile | list[_core.BlockFile] | tuple[_core.BlockFile, ...],
        buffer: Any,
        *,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Future[Any]:
        """Begin what `run` does, on the I/O thread.

        Args:
            operations: as `run`, like all the others. All buffers are lent until the future is
                done; they must have no other user meanwhile.
            files: one, or those that the field `file` counts.
            buffer: memory of all operations.
            exact: continue short reads and writes.
            return_errors: have failed operations as -errno in the result.
            results: int64 array for the result.

        Returns:
            A future of what `run` returns. Its callbacks run on the thread that completes the
            futures of this queue. `cancel` works until it is done: it ends the wait,
            while the buffers are kept until the kernel has released them.

        Raises:
            ConfigError: an operation is wrong; nothing was submitted.
            ClosedError, LimitError, BrokenError: as `run`.

        Threads: any. Cost: some 15 us per batch, and one wake-up for all that are done together.
        """
        start = partial(self.start, exact=exact, return_errors=return_errors, results=results)
        return self._submit(lambda port, ticket: start(port, ticket, operations, files, buffer))

    def close(self) -> int:
        """Refuse further batches, cancel those in flight, wait until the kernel has released them.

        Idempotent. Batches that a close cancels end with ECANCELED.

        Returns:
            Operations that the kernel did not release within five seconds; their memory is
            never used again.

        Threads: any; rings of other threads end with those threads, those of event loops when the
        loop's last `async with` ends.
        """
        left = super().close()
        self._futures.close()
        return left

    def __enter__(self) -> Self:
        """Return the queue itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the queue."""
        self.close()

    async def __aenter__(self) -> AsyncQueue:
        """Return the queue's asyncio face for the running loop."""
        from forebay.blockio.files.async_queue import AsyncQueue
        from forebay.blockio.files.loop_port import enter_face

        return enter_face(self._entered, AsyncQueue(self))

    async def __aexit__(self, *_: object) -> None:
        """Leave the loop, and close the queue."""
        from forebay.blockio.files.loop_port import leave_face

        await leave_face(self._entered).aclose()

    def _submit(self, start: Callable[[_core.BlockPort, int], _core.BlockBatch]) -> Future[Any]:
        return self._futures.submit(self, start)

    def _forget(self) -> tuple[object, ...]:
        """Start afresh; return what must not be dropped in a forked child."""
        before = (getattr(self, "_futures", None), getattr(self, "_loops", None))
        self._futures = Futures()
        self._loops = {}
        return before


def _figures() -> Iterable[Figure]:
    """The operations of this process, those of queues that were closed included."""
    for kind, backend, count in _core.blockio_totals():
        yield "forebay_blockio_operations_total", (kind, backend), count


tell_by("blockio", _figures)
