"""Counts the allocations of a face in a process of its own.

It prints, for batches of each size, what malloc and Python's allocators were asked for.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
from collections import deque
from collections.abc import Callable
from itertools import islice, repeat
from typing import Any

import numpy as np

from forebay.blockio import BlockFile, Queue
from forebay.blockio.files.futures import tickets
from forebay.memory import Arena
from forebay.transport import new_event_loop

SIZES = (512, 2048)
"""Operations of a batch; what is allocated per operation shows as a difference.

Both are numbers of which Python makes an object, as it does not for those up to 256.
"""
DIRECT_BATCHES = int(os.environ.get("FOREBAY_DIRECT_BATCHES", "10"))
BATCHES = {"cached": (5, 55), "direct": (5, 5 + DIRECT_BATCHES)}
"""Batches of a run; of the larger size the difference is more than 100,000 reads from the cache.

So it is with direct reads where FOREBAY_DIRECT_BATCHES is 50, as in `make soak`.
"""
ROUNDS = 2
BLOCK_BYTES = 4096
SMALL_NUMBERS = 257
"""Python has an object of each of the first ones; later tickets are objects of their own."""

Counts = tuple[int, int, int]


class Counter:
    """The counters of the library that was preloaded."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._counts = (library.count_of_malloc, library.count_of_python, library.count_of_objects)
        for count in self._counts:
            count.restype = ctypes.c_ulong
        if library.count_python():
            raise SystemExit("this program has no Python allocators to count")

    def now(self) -> Counts:
        """Calls until now: of malloc, of Python's allocators, of that for objects."""
        malloc, python, objects = self._counts
        return malloc(), python(), objects()


def reads(blocks: int) -> tuple[Any, Any, Any]:
    """Offsets, memory and room for the results of each size's batch."""
    arena = Arena("64MiB")
    offsets = np.arange(max(SIZES), dtype=np.uint64) * np.uint64(37) % np.uint64(blocks)
    out = arena.empty((max(SIZES), BLOCK_BYTES), np.uint8)
    return offsets * np.uint64(BLOCK_BYTES), out, np.zeros(max(SIZES), np.int64)


def rounds(counter: Counter, run: Callable[[int], None], count: int) -> Counts:
    """The fewest calls of several rounds: a round may be met by a thread that comes late."""
    run(count)
    found = []
    for _ in range(ROUNDS):
        before = counter.now()
        run(count)
        after = counter.now()
        found.append([late - early for early, late in zip(before, after, strict=True)])
    malloc, python, objects = map(min, zip(*found, strict=True))
    return malloc, python, objects


def main(face: str, engine: str, path: str, cached: str) -> None:
    """Measure one face on one engine; print [malloc, Python, objects] for each size of batch."""
    counter = Counter()
    deque(islice(tickets, SMALL_NUMBERS), maxlen=0)
    with (
        Queue(engine=engine, threads=8, io_thread=face == "io-thread") as queue,
        BlockFile(path, direct=cached == "direct", queue=queue) as file,
    ):
        offsets, out, results = reads(file.size_bytes // BLOCK_BYTES)
        gc.collect()
        gc.disable()
        found = []
        for count in SIZES:
            run = RUNS[face](queue, file, offsets[:count], out[:count], results[:count])
            few, many = (rounds(counter, run, batches) for batches in BATCHES[cached])
            found.append([more - less for less, more in zip(few, many, strict=True)])
            assert results[:count].tolist() == [BLOCK_BYTES] * count
    sys.stdout.write(json.dumps(found))


def blocking(
    queue: Queue, file: BlockFile, offsets: Any, out: Any, results: Any
) -> Callable[[int], None]:
    """Calls one after the other."""

    def run(batches: int) -> None:
        for _ in repeat(None, batches):
            file.read_many(offsets, out, results=results)

    return run


def futures(
    queue: Queue, file: BlockFile, offsets: Any, out: Any, results: Any
) -> Callable[[int], None]:
    """Futures, one after the other."""

    def run(batches: int) -> None:
        for _ in repeat(None, batches):
            file.submit("read_many", offsets, out, results=results).result()

    return run


def in_loop(
    queue: Queue, file: BlockFile, offsets: Any, out: Any, results: Any
) -> Callable[[int], None]:
    """Awaited calls in one loop."""
    runner = asyncio.Runner(loop_factory=new_event_loop)

    async def main(batches: int) -> None:
        async with BlockFile(file.path, direct=file.direct, queue=queue) as entered:
            for _ in repeat(None, batches):
                await entered.read_many(offsets, out, results=results)

    return lambda batches: runner.run(main(batches))  # the runner ends with the process


RUNS = {"blocking": blocking, "futures": futures, "asyncio": in_loop, "io-thread": in_loop}

if __name__ == "__main__":
    main(*sys.argv[1:])
