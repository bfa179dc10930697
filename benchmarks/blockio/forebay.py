"""Our faces and engines under the loads of these rows.

Every array is made before the timed part: the lists of offsets, the memory that is read into, which
is the arena's and thus registered, and the results.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.blockio.file import BLOCK_BYTES, Blocks, check, prepare, random_offsets
from benchmarks.blockio.load import BATCH, DEPTH, LISTS, READS
from benchmarks.blockio.meter import Meter, repeat
from benchmarks.blockio.stores import told
from benchmarks.stopwatch import Figures

if TYPE_CHECKING:
    from forebay.blockio import BlockFile, Queue

ARENA = "64MiB"
TOGETHER_S = 30.0


@contextmanager
def queue(engine: str) -> Iterator[tuple[Queue, Any]]:
    """A queue of this depth and batch, and the arena that is registered with it."""
    from forebay.blockio import Queue
    from forebay.memory import Arena

    with (
        Arena(ARENA) as arena,
        Queue(max_batch=BATCH, max_concurrency=DEPTH, engine=engine, arena=arena) as made,
    ):
        yield made, arena


def block_file(store: str, made: Queue) -> tuple[BlockFile, Path]:
    """The file of a store, past the page cache unless it is `cached`; not entered yet."""
    from forebay.blockio import BlockFile

    path = told().path(store)
    prepare(path, store)
    return BlockFile(path, direct=store != "cached", queue=made), path


def memory(arena: Any, reads: int) -> Blocks:
    """Blocks of the arena, each aligned as O_DIRECT wants it."""
    blocks: Blocks = arena.empty((max(reads, 16), BLOCK_BYTES), "u1")  # smaller ones are not
    return blocks[:reads]


@contextmanager
def lists(store: str, engine: str = "ring") -> Iterator[Callable[[int], int]]:
    """One step is a list of `READS` blocks through the blocking face; afterwards one is checked."""
    with queue(engine) as (made, arena):
        opened, path = block_file(store, made)
        offsets = random_offsets(path, LISTS, READS)
        out, results = memory(arena, READS), np.empty(READS, np.int64)

        with opened as file:

            def step(number: int) -> int:
                file.read_many(offsets[number % LISTS], out, results=results)
                return READS

            yield step
            file.read_many(offsets[0], out, results=results)
        check_all(offsets[0], out, results)


def blocking(store: str, seconds: float, warm_up_s: float, engine: str = "ring") -> Figures:
    """Lists of `READS` blocks through the blocking face, from one thread."""
    with lists(store, engine) as step:
        return repeat(step, seconds=seconds, warm_up_s=warm_up_s)


def listed(store: str, seconds: float, warm_up_s: float) -> Figures:
    """The same lists into as much memory as fio reads into: a block for each read in flight.

    It stays in the processor's caches then, which is a quarter of the time of a cached read.
    """
    with queue("ring") as (made, arena):
        opened, path = block_file(store, made)
        offsets = random_offsets(path, LISTS, READS)
        out, operations, results = _same_memory(arena)

        with opened as file:

            def step(number: int) -> int:
                operations["offset"] = offsets[number % LISTS]
                made.run(operations, file, out, results=results)
                return READS

            figures = repeat(step, seconds=seconds, warm_up_s=warm_up_s)
            file.read_many(offsets[0][:DEPTH], out, results=results[:DEPTH])
        check_all(offsets[0][:DEPTH], out, results[:DEPTH])
        return figures


def _same_memory(arena: Any) -> tuple[Blocks, Any, Any]:
    """A block for each read in flight, a list of reads that share them, and their results."""
    from forebay.blockio import OPERATION

    operations = np.zeros(READS, OPERATION)
    operations["length"] = BLOCK_BYTES
    operations["buffer_offset"] = np.arange(READS) % DEPTH * BLOCK_BYTES
    return memory(arena, DEPTH), operations, np.empty(READS, np.int64)


def awaited_lists(store: str, seconds: float, warm_up_s: float) -> Figures:
    """These lists through the asyncio face, one after the other.

    The asyncio peers have a block for each read in flight too: what they return is dropped at once.
    """

    async def main() -> Figures:
        with queue("ring") as (made, arena):
            opened, path = block_file(store, made)
            offsets = random_offsets(path, LISTS, READS)
            out, operations, results = _same_memory(arena)
            async with made as awaited_queue, opened as file:

                async def read(until: Meter) -> int:
                    number = 0
                    until.start()
                    while not until.over():
                        operations["offset"] = offsets[number % LISTS]
                        await awaited_queue.run(operations, opened, out, results=results)
                        number += 1
                    return number * READS

                await read(Meter(warm_up_s))
                meter = Meter(seconds)
                figures = meter.figures(await read(meter))
                found = results[:DEPTH]
                await file.read_many(offsets[0][:DEPTH], out, results=found)
            check_all(offsets[0][:DEPTH], out, found)
            return figures

    return asyncio.run(main())


def awaited(store: str, seconds: float, warm_up_s: float) -> Figures:
    """The same lists through the asyncio face, one after the other."""

    async def main() -> Figures:
        with queue("ring") as (made, arena):
            opened, path = block_file(store, made)
            offsets = random_offsets(path, LISTS, READS)
            out, results = memory(arena, READS), np.empty(READS, np.int64)
            async with opened as file:

                async def read(until: Meter) -> int:
                    number = 0
                    until.start()
                    while not until.over():
                        await file.read_many(offsets[number % LISTS], out, results=results)
                        number += 1
                    return number * READS

                await read(Meter(warm_up_s))
                meter = Meter(seconds)
                figures = meter.figures(await read(meter))
                await file.read_many(offsets[0], out, results=results)
            check_all(offsets[0], out, results)
            return figures

    return asyncio.run(main())


def threads(
    store: str, clients: int, reads: int, seconds: float, warm_up_s: float, engine: str = "ring"
) -> Figures:
    """Threads that each read one list of so many blocks after the other, on rings of their own."""
    warm = threading.Barrier(clients + 1, timeout=TOGETHER_S)
    started = threading.Barrier(clients + 1, timeout=TOGETHER_S)
    meter = Meter(seconds)
    with queue(engine) as (made, arena), ThreadPoolExecutor(clients) as executor:
        opened, path = block_file(store, made)
        with opened as file:

            def client() -> int:
                offsets = random_offsets(path, LISTS * READS // reads // clients, reads)
                out, results = memory(arena, reads), np.empty(reads, np.int64)

                def read(until: Meter) -> int:
                    count = 0
                    while not until.over():
                        chosen = offsets[count % len(offsets)]
                        file.read_many(chosen, out, results=results)
                        count += 1
                    check_all(chosen, out, results)
                    return count * reads

                warming = Meter(warm_up_s)
                warming.start()
                read(warming)
                warm.wait()
                started.wait()
                return read(meter)

            running = [executor.submit(client) for _ in range(clients)]
            warm.wait()
            meter.start()
            started.wait()
            return meter.figures(sum(each.result() for each in running))


def check_all(offsets: Any, out: Blocks, results: Any) -> None:
    """Hold a whole list to having been read."""
    if not (results == BLOCK_BYTES).all():
        raise ValueError(f"results differ from {BLOCK_BYTES}: {np.unique(results)}")
    check(offsets, out)
