"""The file of written blocks that all contestants read, and the state of the page cache for it.

Every block begins with its own number, so that each side can be held to having read what it asked
for; the rest is random, so that no layer below compresses it or finds two blocks alike.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.executor.program import ON_DISK
from benchmarks.runner import ROOT

BLOCK_BYTES = 4096
FILE_BYTES = 1 << 30
CHUNK_BLOCKS = 1024
NUMBER_BYTES = 8
IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs", "devtmpfs", "zram"})

Offsets = npt.NDArray[np.uint64]
Blocks = npt.NDArray[np.uint8]


def make(path: Path, file_bytes: int = FILE_BYTES) -> None:
    """Write the file and have it on the disk."""
    random = np.random.default_rng(7)
    blocks = file_bytes // BLOCK_BYTES
    with path.open("wb", buffering=0) as file:
        for first in range(0, blocks, CHUNK_BLOCKS):
            count = min(CHUNK_BLOCKS, blocks - first)
            chunk = np.frombuffer(random.bytes(count * BLOCK_BYTES), np.uint8).copy()
            numbers = np.arange(first, first + count, dtype=np.uint64)
            chunk.reshape(count, BLOCK_BYTES)[:, :NUMBER_BYTES] = _bytes_of(numbers)
            file.write(chunk.data)
        os.fsync(file.fileno())


def file_system(path: Path) -> tuple[str, str]:
    """Type and device of the file system on which a path lies."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        if before.split()[2] == wanted:
            kind, source, *_ = behind.split()
            return kind, source
    return "unknown", wanted


@contextmanager
def folder() -> Iterator[Path]:
    """A folder on a real disk for the length of a run: of the checkout, else of the machine.

    Raises:
        FileNotFoundError: all that may be used is memory.
    """
    refused = []
    (ROOT / "build").mkdir(exist_ok=True)
    for parent in (ROOT / "build", Path(ON_DISK)):
        kind, _ = file_system(parent)
        if kind not in IN_MEMORY:
            with tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=parent) as name:
                yield Path(name)
            with contextlib.suppress(OSError):
                (ROOT / "build").rmdir()  # unless something else is in it
            return
        refused.append(f"{parent} is {kind}")
    raise FileNotFoundError(f"no folder on a disk for the file: {', '.join(refused)}")


def warm(path: Path) -> None:
    """Have the whole file in the page cache."""
    buffer = memoryview(bytearray(4 << 20))
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def evict(path: Path) -> None:
    """Have nothing of the file in the page cache, and all of it where the machine keeps it nearest.

    A virtual machine's disk may lie behind a cache of its host: blocks that nobody has read for a
    minute took fifteen times as long as others here. Whoever comes first would pay for the others.
    """
    buffer = mmap.mmap(-1, CHUNK_BLOCKS * BLOCK_BYTES)  # aligned, as O_DIRECT wants it
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        offset = 0
        while taken := os.preadv(file, [buffer], offset):
            offset += taken
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def prepare(path: Path, store: str) -> None:
    """Bring the page cache into the state that a store is named for."""
    if store == "cached":
        warm(path)
    else:
        evict(path)


def random_offsets(path: Path, lists: int, reads: int) -> Offsets:
    """Offsets of random blocks of a file, shape (lists, reads), in bytes."""
    blocks = path.stat().st_size // BLOCK_BYTES
    numbers = np.random.default_rng().integers(0, blocks, (lists, reads), dtype=np.uint64)
    return numbers * np.uint64(BLOCK_BYTES)


def check(offsets: Any, blocks: Blocks) -> None:
    """Hold blocks that were read, shape (n, at least 8), against the offsets asked for.

    Raises:
        ValueError: one of them is another block, so that the figures would mean nothing.
    """
    expected = np.asarray(offsets, np.uint64) // np.uint64(BLOCK_BYTES)
    found = np.ascontiguousarray(blocks[:, :NUMBER_BYTES]).view(np.uint64)[:, 0]
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        first = int(wrong[0])
        raise ValueError(
            f"{wrong.size} of {found.size} blocks are wrong: read {first} asked for block "
            f"{expected[first]} and got {found[first]}"
        )


def _bytes_of(numbers: npt.NDArray[np.uint64]) -> Blocks:
    return numbers.view(np.uint8).reshape(-1, NUMBER_BYTES)
