"""What Python programs read blocks with today: preadv in threads, caio, aiofiles.

Every one reads at the same depth into memory that is ready, where it can: caio returns new bytes.
"""

from __future__ import annotations

import asyncio
import importlib
import mmap
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.blockio.file import BLOCK_BYTES, NUMBER_BYTES, check, prepare, random_offsets
from benchmarks.blockio.load import BATCH, DEPTH, LISTS, READS
from benchmarks.blockio.meter import Meter
from benchmarks.blockio.stores import told
from benchmarks.stopwatch import Figures

AIOFILES_THREADS = 32
CAIO = {
    "io_uring": "caio.linux_uring_asyncio",
    "linux_aio": "caio.linux_aio_asyncio",
    "threads": "caio.thread_aio_asyncio",
}

# Reads the block at an offset, and gives it or its beginning.
Read = Callable[[int], Awaitable[bytes]]


def aligned_blocks(count: int) -> list[memoryview]:
    """Memory for so many blocks, each aligned as O_DIRECT wants it."""
    memory = memoryview(mmap.mmap(-1, count * BLOCK_BYTES))
    return [memory[at : at + BLOCK_BYTES] for at in range(0, len(memory), BLOCK_BYTES)]


@contextmanager
def opened(store: str) -> Iterator[tuple[int, Path]]:
    """A descriptor of the file of a store, past the page cache unless it is `cached`."""
    path = told().path(store)
    prepare(path, store)
    descriptor = os.open(path, os.O_RDONLY | (0 if store == "cached" else os.O_DIRECT))
    try:
        yield descriptor, path
    finally:
        os.close(descriptor)


def thread_pool(store: str, threads: int, seconds: float, warm_up_s: float) -> Figures:
    """A future for each read, `DEPTH` of them outstanding, as `concurrent.futures` offers it."""
    blocks = aligned_blocks(DEPTH)
    buffers = [[block] for block in blocks]
    waiting: deque[list[tuple[int, Future[int]]]] = deque()
    with opened(store) as (file, path), ThreadPoolExecutor(threads) as executor:
        offsets = random_offsets(path, LISTS, READS).ravel().tolist()

        def submit(first: int) -> None:
            span = range(first, first + BATCH)
            waiting.append(
                [
                    (at, executor.submit(os.preadv, file, buffers[at % DEPTH], offsets[at]))
                    for at in (number % len(offsets) for number in span)
                ]
            )

        def take() -> int:
            futures = waiting.popleft()
            if any(future.result() != BLOCK_BYTES for _, future in futures):
                raise ValueError("a read was short")
            at = futures[-1][0]
            check([offsets[at]], np.frombuffer(blocks[at % DEPTH], np.uint8)[None, :])
            return len(futures)

        def fill(first: int, until: float) -> tuple[int, int]:
            reads = 0
            while time.perf_counter() < until:
                if len(waiting) * BATCH == DEPTH:
                    reads += take()
                submit(first)
                first += BATCH
            while waiting:
                reads += take()
            return first, reads

        first, _ = fill(0, time.perf_counter() + warm_up_s)
        meter = Meter(seconds)
        meter.start()
        _, reads = fill(first, meter.until)
        return meter.figures(reads)


async def _many(read: Read, path: Path, *, seconds: float, warm_up_s: float) -> Figures:
    """`DEPTH` coroutines that read one block after the other."""
    offsets = iter(random_offsets(path, LISTS, READS).ravel().tolist())
    clock = time.perf_counter

    async def reader(until: float) -> int:
        reads, offset, block = 0, 0, b""
        while clock() < until:
            offset = next(offsets)
            block = await read(offset)
            reads += 1
        if reads:
            check([offset], np.frombuffer(block, np.uint8)[None, :])
        return reads

    await asyncio.gather(*(reader(clock() + warm_up_s) for _ in range(DEPTH)))
    meter = Meter(seconds)
    meter.start()
    reads = await asyncio.gather(*(reader(meter.until) for _ in range(DEPTH)))
    return meter.figures(sum(reads))


def caio_reads(backend: str, seconds: float, warm_up_s: float) -> Figures:
    """Read through caio on one of its back ends; its bytes are not aligned for O_DIRECT."""

    async def main() -> Figures:
        with opened("cached") as (file, path):
            context = importlib.import_module(CAIO[backend]).AsyncioContext(max_requests=DEPTH)

            async def read(offset: int) -> bytes:
                block: bytes = await context.read(BLOCK_BYTES, file, offset)
                return block

            try:
                return await _many(read, path, seconds=seconds, warm_up_s=warm_up_s)
            finally:
                context.close()

    return asyncio.run(main())


@asynccontextmanager
async def _reads_of_aiofiles(path: Path) -> AsyncIterator[Read]:
    """Each coroutine has a file of its own, since one has a single position."""
    import aiofiles

    files: list[Any] = [await aiofiles.open(path, "rb", buffering=0) for _ in range(DEPTH)]
    free = list(zip(files, aligned_blocks(DEPTH), strict=True))

    async def read(offset: int) -> bytes:
        file, block = free.pop()
        await file.seek(offset)
        await file.readinto(block)
        beginning = bytes(block[:NUMBER_BYTES])
        free.append((file, block))
        return beginning

    try:
        yield read
    finally:
        for file in files:
            await file.close()


def aiofiles_reads(seconds: float, warm_up_s: float) -> Figures:
    """Read through aiofiles: a hop to a thread for the seek, another for the read."""

    async def main() -> Figures:
        path = told().path("cached")
        prepare(path, "cached")
        executor = ThreadPoolExecutor(AIOFILES_THREADS)
        asyncio.get_running_loop().set_default_executor(executor)
        async with _reads_of_aiofiles(path) as read:
            return await _many(read, path, seconds=seconds, warm_up_s=warm_up_s)

    return asyncio.run(main())
