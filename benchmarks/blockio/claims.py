"""The claims of block I/O: one module per subject, each with its `CLAIMS`.

Random 4 KiB reads of a file of written, random blocks on a real disk, made for the run and removed
after it; the same copied to a zram device where one can be made. Every side checks what it read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.blockio import depth1, file, fio, hog, lists, sample, zram
from benchmarks.blockio import limits as blockio_limits
from benchmarks.blockio import stores as blockio_stores
from benchmarks.claim import Claim

# One line per subject; in each round they run in this order.
SUBJECTS = (hog, lists, depth1, sample)

CLAIMS: list[Claim] = [claim for subject in SUBJECTS for claim in subject.CLAIMS]

MEMORY_SHARE = 4
"""The file is so many times the memory that a sampler may use."""


@contextmanager
def around(claims: list[Claim], *, limits: bool) -> Iterator[list[str]]:
    """Have the files and limits that the claims need, for the length of a run.

    Args:
        claims: those that will be measured.
        limits: whether a memory limit and the disk's read-ahead may be set.

    Yields:
        What the table's head says of them.
    """
    undo = ExitStack()
    try:
        folder = undo.enter_context(file.folder())
        path = folder / "blocks"
        print(f"writing {path}", file=sys.stderr, flush=True)
        file.make(path)
        stores = blockio_stores.Stores(disk=str(path))
        if _needs(claims, "blockio.zram."):
            stores = _with_zram(stores, undo)
        if _needs(claims, "blockio.sample.") and limits:
            stores = _with_limits(stores, undo)
        stores.tell()
        undo.callback(blockio_stores.forget)
        yield _notes(stores)
    finally:
        with blockio_limits.unbroken():  # however often somebody presses Ctrl-C
            undo.close()


def _needs(claims: list[Claim], beginning: str) -> bool:
    return any(claim.name.startswith(beginning) for claim in claims)


def _with_zram(stores: blockio_stores.Stores, undo: ExitStack) -> blockio_stores.Stores:
    try:
        copy = undo.enter_context(zram.zram(Path(stores.disk)))
    except zram.NoZramError as error:
        return replace(stores, zram_missing=str(error))
    return replace(stores, zram=str(copy))


def _with_limits(stores: blockio_stores.Stores, undo: ExitStack) -> blockio_stores.Stores:
    disk = Path(stores.disk)
    records = disk.with_name("records")
    memory_bytes = disk.stat().st_size // MEMORY_SHARE
    try:
        sample.write_records(disk, records)
        group = undo.enter_context(blockio_limits.limits(disk, memory_bytes))
    except OSError as error:
        return replace(stores, limits_missing=str(error))
    return replace(
        stores,
        records=str(records),
        memory_group=str(group.memory),
        cpu_group=str(group.cpu),
    )


def _notes(stores: blockio_stores.Stores) -> list[str]:
    kind, device = file.file_system(Path(stores.disk))
    size = os.path.getsize(stores.disk)
    limits = "set" if stores.memory_group else f"not set: {stores.limits_missing}"
    return [
        f"file: {size >> 20} MiB of random blocks on {kind}, {device}",
        f"zram: {'made' if stores.zram else stores.zram_missing}",
        f"limits of the samplers: {limits}",
        fio.version() or "fio is not installed",
    ]
