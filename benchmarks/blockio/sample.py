"""Random minibatches of 4 KiB records from a file four times the memory that may be used.

Everyone starts with nothing of the file in the page cache, inside a control group with a quarter of
the file's size, and touches every record of a batch; the disk reads 128 KiB ahead where a reader
goes through the page cache. All read one file: behind its header a record is a block.
The loader is what training libraries do: threads that build whole batches, ahead of the consumer.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.blockio.file import BLOCK_BYTES, NUMBER_BYTES, Blocks, check, evict
from benchmarks.blockio.meter import RATE, repeat
from benchmarks.blockio.stores import told
from benchmarks.cgroup import Cgroup
from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.stopwatch import Figures

RECORD = np.dtype([("number", "<u8"), ("rest", "u1", (BLOCK_BYTES - NUMBER_BYTES,))])
HEADER_BYTES = 3 * BLOCK_BYTES
"""What a record file has before its records; they are checked, so that a change of it shows."""
APPENDED = 16_384
"""Records that the file is written by."""
BATCHES = 4096
"""Batches of different indices; a million records."""
LOADER_BATCHES = 2
"""Batches that a loader has in preparation for each of its threads."""

Indices = npt.NDArray[np.int64]


def write_records(blocks: Path, records: Path) -> None:
    """Copy a file of blocks into a file of records."""
    from forebay.blockio import RecordFile

    with RecordFile(records, RECORD, mode="a") as file:
        rows = np.memmap(blocks, RECORD, "r")
        for first in range(0, len(rows), APPENDED):
            file.append(rows[first : first + APPENDED])


def enter_limits() -> None:
    """Put this process under the limits of the run, with a cold cache.

    Raises:
        PermissionError: the run has none; the message says why.
    """
    stores = told()
    if not stores.memory_group:
        raise PermissionError(f"no limits: {stores.limits_missing}")
    evict(Path(stores.records))
    Cgroup(Path(stores.memory_group), Path(stores.cpu_group)).enter()


def forebay_samples(batch: int, seconds: float) -> Figures:
    """Ours, with batches read ahead."""
    from forebay.blockio import RecordFile

    enter_limits()
    random = np.random.default_rng()
    with RecordFile(told().records, RECORD) as file:

        def step(_: int) -> int:
            _use(file.sample(batch, rng=random, prefetch=2)["number"])
            return batch

        figures = repeat(step, seconds=seconds, warm_up_s=0.0)
        chosen = random.integers(0, len(file), batch)
        found = np.ascontiguousarray(file.gather(chosen)["number"]).view(np.uint8)
    check(chosen * BLOCK_BYTES, found.reshape(batch, NUMBER_BYTES))
    return figures


def memmap_samples(batch: int, seconds: float, advise: int = 0) -> Figures:
    """np.memmap, indexed by a batch; with `advise` the kernel is told that access is random."""
    enter_limits()
    rows, indices = _rows(), _indices(batch)
    if advise:
        rows._mmap.madvise(mmap.MADV_RANDOM)

    def step(number: int) -> int:
        chosen = indices[number % BATCHES]
        found = rows[chosen]
        _use(found[:, :NUMBER_BYTES])
        if number == 0:
            check(chosen * BLOCK_BYTES, found)
        return batch

    return repeat(step, seconds=seconds, warm_up_s=0.0)


def loader_samples(batch: int, seconds: float, threads: int) -> Figures:
    """Threads that read the records of a batch one by one, and stack them."""
    enter_limits()
    indices = _indices(batch)
    file = os.open(told().records, os.O_RDONLY)
    waiting: deque[tuple[int, Future[Blocks]]] = deque()

    def load(number: int) -> Blocks:
        records = (
            np.frombuffer(os.pread(file, BLOCK_BYTES, offset), np.uint8)
            for offset in (indices[number % BATCHES] * BLOCK_BYTES + HEADER_BYTES).tolist()
        )
        return np.stack(list(records))

    try:
        with ThreadPoolExecutor(threads) as executor:

            def step(number: int) -> int:
                ahead = number + len(waiting)
                while len(waiting) < LOADER_BATCHES * threads:
                    waiting.append((ahead, executor.submit(load, ahead)))
                    ahead += 1
                loaded, future = waiting.popleft()
                found = future.result()
                _use(found[:, :NUMBER_BYTES])
                if number == 0:
                    check(indices[loaded] * BLOCK_BYTES, found)
                return batch

            return repeat(step, seconds=seconds, warm_up_s=0.0)
    finally:
        os.close(file)


def _rows() -> Any:
    shape = (_records(), BLOCK_BYTES)
    return np.memmap(told().records, np.uint8, "r", offset=HEADER_BYTES, shape=shape)


def _indices(batch: int) -> Indices:
    return np.random.default_rng().integers(0, _records(), (BATCHES, batch))


def _records() -> int:
    return (os.path.getsize(told().records) - HEADER_BYTES) // BLOCK_BYTES


def _use(part: npt.NDArray[Any]) -> int:
    """Touch every record, as whoever asked for them would."""
    return int(part.sum(dtype=np.uint64))


def _contestant(name: str, function: str, **options: Option) -> Contestant:
    times: dict[str, Option] = {"batch": 256, "seconds": 4.0}
    return Contestant(
        name, f"benchmarks.blockio.sample:{function}", OWN, times | options, {"seconds": 2.0}
    )


def _row(name: str, peer: Contestant) -> Claim:
    return Claim(
        *(f"blockio.sample.{name}", FOREBAY, peer, RATE, "records/s"),
        higher_is_better=True,
        optional=True,
    )


FOREBAY = _contestant("forebay RecordFile", "forebay_samples")
CLAIMS = [
    _row("vs_memmap", _contestant("np.memmap", "memmap_samples")),
    _row("vs_memmap_random", _contestant("np.memmap, random", "memmap_samples", advise=1)),
    _row("vs_loader8", _contestant("loader of 8 threads", "loader_samples", threads=8)),
]
