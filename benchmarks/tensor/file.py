"""Rows of a file four times as large as the memory that may be used: pulled, and gathered.

Everyone reads the same random batches of 4 KiB rows from the same record file, inside a control
group with a quarter of the file's size, with nothing of it in the page cache at the start. The
server that ours pulls from is in the group too, in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.blockio import file as blockio_file
from benchmarks.blockio import limits as blockio_limits
from benchmarks.blockio import stores as blockio_stores
from benchmarks.blockio.file import BLOCK_BYTES, NUMBER_BYTES, check
from benchmarks.blockio.meter import RATE, repeat
from benchmarks.blockio.sample import RECORD, Indices, enter_limits, write_records
from benchmarks.blockio.stores import told
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures
from benchmarks.tensor.round import stay
from benchmarks.transport.processes import Children

MEMORY_SHARE = 4
BATCH = 256
BATCHES = 1024
NAME = "table"


@contextmanager
def around(*, limits: bool) -> Iterator[str]:
    """Have the record file and the memory limit for the length of a run; gives what it made."""
    undo = ExitStack()
    try:
        stores = blockio_stores.Stores(disk="")
        if limits:
            stores = _with_limits(undo)
        stores.tell()
        undo.callback(blockio_stores.forget)
        yield "set" if stores.memory_group else f"not set: {stores.limits_missing}"
    finally:
        with blockio_limits.unbroken():
            undo.close()


def _with_limits(undo: ExitStack) -> blockio_stores.Stores:
    folder = undo.enter_context(blockio_file.folder())
    blocks, records = folder / "blocks", folder / "records"
    print(f"writing {records}", file=sys.stderr, flush=True)
    blockio_file.make(blocks)
    write_records(blocks, records)
    memory_bytes = blocks.stat().st_size // MEMORY_SHARE
    try:
        group = undo.enter_context(blockio_limits.limits(records, memory_bytes))
    except OSError as error:
        return blockio_stores.Stores(str(blocks), limits_missing=str(error))
    return blockio_stores.Stores(
        str(blocks),
        records=str(records),
        memory_group=str(group.memory),
        cpu_group=str(group.cpu),
    )


def gathered(seconds: float) -> Figures:
    """`RecordFile.gather` in one process."""
    from forebay.blockio import RecordFile

    enter_limits()
    with RecordFile(told().records, RECORD) as file:
        return _timed(lambda rows: file.gather(rows)["number"], len(file), seconds)


def pulled(seconds: float) -> Figures:
    """A server of the file, and a client.

    Raises:
        NotImplementedError: there is no such table yet.
    """
    from forebay import tensor

    if not hasattr(tensor, "FileTensor"):
        raise NotImplementedError("forebay.tensor serves no rows of files yet")
    enter_limits()
    with Children() as children:
        url, rows_total = children.start(_serve).reply()
        with tensor.TensorClient(url) as client:
            table = client.tensor(NAME)
            return _timed(lambda rows: client.pull(table, rows)["number"], rows_total, seconds)


def _serve(pipe: Connection) -> None:
    from forebay import tensor
    from forebay.blockio import RecordFile

    path = told().records
    with RecordFile(path, RECORD) as file:
        rows = len(file)
    table = tensor.FileTensor(path)
    with tensor.TensorServer({NAME: table}, "tcp://127.0.0.1:0") as server:
        pipe.send((server.url, rows))
        stay(pipe)


def _timed(read: Callable[[Indices], Any], rows: int, seconds: float) -> Figures:
    """Batches one after the other, each row of them touched; one batch is compared."""
    random = np.random.default_rng()
    batches = random.integers(0, rows, (BATCHES, BATCH))

    def step(number: int) -> int:
        int(read(batches[number % BATCHES]).sum(dtype=np.uint64))
        return BATCH

    figures = repeat(step, seconds=seconds, warm_up_s=0.0)
    found = np.ascontiguousarray(read(batches[0])).view(np.uint8)
    check(batches[0] * BLOCK_BYTES, found.reshape(BATCH, NUMBER_BYTES))
    return figures


def _contestant(name: str, function: str) -> Contestant:
    return Contestant(
        name, f"benchmarks.tensor.file:{function}", OWN, {"seconds": 4.0}, {"seconds": 2.0}
    )


CLAIMS = [
    Claim(
        "tensor.file_backed.vs_gather",
        _contestant("forebay, rows of a file", "pulled"),
        _contestant("RecordFile.gather", "gathered"),
        *(RATE, "rows/s"),
        higher_is_better=True,
        optional=True,
    )
]
