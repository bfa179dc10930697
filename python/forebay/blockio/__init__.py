"""Batched I/O of blocks through io_uring, with nothing allocated per block.

A `BlockFile` reads and writes lists of blocks from and to memory of an arena, or your own.
A `Queue` carries the lists out: on a ring of the calling thread, of an event loop, or of an I/O
thread; by threads where io_uring is not to be had. Without one, all share `default_queue()`.
A `RecordFile` holds records of one size in such a file: appended, sampled and gathered.

`with` enters the blocking face, `async with` the asyncio one; `submit` returns a future.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forebay.blockio.files.default import default_queue, set_default_queue
from forebay.blockio.files.file import BlockFile
from forebay.blockio.files.operation import FDATASYNC, FSYNC, READ, WRITE
from forebay.blockio.files.queue import Queue

if TYPE_CHECKING:
    from forebay.blockio.files.arrays import OPERATION
    from forebay.blockio.files.async_file import AsyncBlockFile
    from forebay.blockio.files.async_queue import AsyncQueue
    from forebay.blockio.records.async_file import AsyncRecordFile
    from forebay.blockio.records.file import RecordFile

__all__ = [
    "FDATASYNC",
    "FSYNC",
    "OPERATION",
    "READ",
    "WRITE",
    "AsyncBlockFile",
    "AsyncQueue",
    "AsyncRecordFile",
    "BlockFile",
    "Queue",
    "RecordFile",
    "default_queue",
    "set_default_queue",
]


def __getattr__(name: str) -> Any:
    """Load what needs numpy or asyncio on first use."""
    if name == "OPERATION":
        from forebay.blockio.files.arrays import operation_dtype

        return operation_dtype()
    if name == "AsyncBlockFile":
        from forebay.blockio.files.async_file import AsyncBlockFile

        return AsyncBlockFile
    if name == "AsyncQueue":
        from forebay.blockio.files.async_queue import AsyncQueue

        return AsyncQueue
    if name == "AsyncRecordFile":
        from forebay.blockio.records.async_file import AsyncRecordFile

        return AsyncRecordFile
    if name == "RecordFile":
        from forebay.blockio.records.file import RecordFile

        return RecordFile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
