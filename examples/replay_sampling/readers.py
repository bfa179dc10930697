"""Three ways to sample the file, each in a program and thus in a memory of its own.

`python -m examples.replay_sampling.readers WAY FILE BATCH SECONDS GROUP` prints records per
second. GROUP is a control group, or empty.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

import forebay

from .memory_limit import enter

DATA_OFFSET = 3 * 4096
"""Header and two commit blocks, see docs/concepts/blockio/records.md."""
THREADS = 8
AHEAD = 2 * THREADS

Numbers = npt.NDArray[np.uint64]
Sample = Callable[[], tuple[npt.NDArray[np.int64] | None, Numbers]]
"""The indices that were drawn, if the way tells, and the numbers that were found there."""


def record_file(path: Path, kind: np.dtype[np.void], batch: int, stack: ExitStack) -> Sample:
    """Ours: two batches are read ahead."""
    del kind  # the file knows
    file = stack.enter_context(forebay.RecordFile(path))
    rng = np.random.default_rng(2)
    return lambda: (None, file.sample(batch, rng=rng, prefetch=2)["number"])


def memmap(path: Path, kind: np.dtype[np.void], batch: int, stack: ExitStack) -> Sample:
    """A page fault, and a read-ahead, for each record."""
    rows = np.memmap(path, kind, "r", offset=DATA_OFFSET)
    rng = np.random.default_rng(2)

    def sample() -> tuple[npt.NDArray[np.int64], Numbers]:
        chosen = rng.integers(0, len(rows), batch)
        return chosen, np.asarray(rows[chosen]["number"])

    return sample


def loader(path: Path, kind: np.dtype[np.void], batch: int, stack: ExitStack) -> Sample:
    """Threads that build batches ahead, a pread for each record."""
    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    pool = stack.enter_context(ThreadPoolExecutor(THREADS))
    count = (os.path.getsize(path) - DATA_OFFSET) // kind.itemsize
    rng = np.random.default_rng(2)
    waiting: deque[tuple[npt.NDArray[np.int64], Future[Numbers]]] = deque()

    def load(chosen: npt.NDArray[np.int64]) -> Numbers:
        size = kind.itemsize
        rows = [os.pread(descriptor, size, DATA_OFFSET + index * size) for index in chosen.tolist()]
        return np.frombuffer(b"".join(rows), kind)["number"]

    def sample() -> tuple[npt.NDArray[np.int64], Numbers]:
        while len(waiting) < AHEAD:
            chosen = rng.integers(0, count, batch)
            waiting.append((chosen, pool.submit(load, chosen)))
        chosen, future = waiting.popleft()
        return chosen, future.result()

    return sample


def as_it_lies(path: Path) -> np.dtype[np.void]:
    """The dtype of a record with what follows it in the file."""
    with forebay.RecordFile(path) as file:
        kind, stride = file.dtype, file.layout.stride_bytes
    names = list(kind.names or ())
    fields = [kind.fields[name] for name in names] if kind.fields else []
    return np.dtype(
        {
            "names": names,
            "formats": [field[0] for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": stride,
        }
    )


WAYS = {"RecordFile": record_file, "np.memmap": memmap, "8 threads": loader}


def records_per_second(
    way: str, path: Path, batch: int, seconds: float, group: Path | None
) -> float:
    """Sample for so long, from a cold cache, and check what was found."""
    if group is not None:
        enter(group)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with ExitStack() as stack:
        sample = WAYS[way](path, as_it_lies(path), batch, stack)
        sampled, begun = 0, time.perf_counter()
        while (took := time.perf_counter() - begun) < seconds:
            chosen, found = sample()
            sampled += len(found)
            if chosen is not None and not (found == chosen).all():
                raise ValueError(f"{way} found other records than it asked for")
        return sampled / took


def _main() -> None:
    way, path, batch, seconds, group = sys.argv[1:]
    within = Path(group) if group else None
    print(records_per_second(way, Path(path), int(batch), float(seconds), within))


if __name__ == "__main__":
    _main()
