"""Block I/O in `forebay._core`: a stub alone, at run time there is no such module.

Documented in crates/python/src/blockio.
"""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, final

from typing_extensions import Buffer as _HasBuffer
from typing_extensions import disjoint_base

from forebay._core_memory import Arena

@disjoint_base
class BlockQueue:
    """Carries out batches of operations."""

    def __new__(
        cls,
        *,
        batch_limit: int,
        concurrency_limit: int,
        engine: str,
        threads: int,
        quarantine_bytes_max: int,
    ) -> Self: ...
    engine: Final[str]
    reason: Final[str]
    @property
    def closed(self) -> bool: ...
    def attach(self, arena: Arena) -> None: ...
    def run(
        self,
        operations: Any,
        files: BlockFile | Iterable[BlockFile],
        buffer: Any,
        *,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any: ...
    def start(
        self,
        port: BlockPort,
        ticket: int,
        operations: Any,
        files: BlockFile | Iterable[BlockFile],
        buffer: Any,
        *,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> BlockBatch: ...
    def port(self, hand_over: bool) -> BlockPort: ...
    def close(self) -> int: ...
    def stats(self) -> dict[str, Any]: ...

@disjoint_base
class BlockFile:
    """A file whose blocks are read and written in batches."""

    def __new__(
        cls, path: str | PathLike[str], mode: str, direct: bool, queue: BlockQueue
    ) -> Self: ...
    path: Final[Path]
    @property
    def closed(self) -> bool: ...
    direct: Final[bool]
    writable: Final[bool]
    @property
    def size_bytes(self) -> int: ...
    alignment: Final[tuple[int, int]]
    queue: Final[BlockQueue]
    def read_many(
        self,
        offsets: Any,
        out: Any,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any: ...
    def write_many(
        self,
        offsets: Any,
        data: Any,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> Any: ...
    def read(self, offset: int, out: Any, *, exact: bool = False) -> int: ...
    def write(self, offset: int, data: Any, *, exact: bool = False) -> int: ...
    def fsync(self) -> None: ...
    def fdatasync(self) -> None: ...
    def start(
        self,
        port: BlockPort,
        ticket: int,
        method: str,
        offsets: Any = None,
        memory: Any = None,
        *,
        lengths: Any = None,
        exact: bool = False,
        return_errors: bool = False,
        results: Any = None,
    ) -> BlockBatch: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...

@final
class BlockBatch:
    """A batch in flight on a port, or done."""

    @property
    def done(self) -> bool: ...
    def result(self) -> Any: ...

@final
class BlockPort:
    """Takes batches, and reports which have ended: one wake-up for many."""

    def fileno(self) -> int: ...
    def turn(self) -> list[int]: ...
    def detach(self, ticket: int, batch: BlockBatch) -> None: ...
    def drain(self, timeout: float) -> tuple[int, list[int]]: ...
    def close(self) -> None: ...

def blockio_totals() -> list[tuple[str, str, int]]:
    """Operations of this process: what they do, what carries them out, how many there were."""

def record_checksums(
    records: _HasBuffer, record_bytes: int, stride_bytes: int, numbers: _HasBuffer | None = None
) -> bytes:
    """The CRC-32C of each whole record of a run of records, as one little-endian u32 each.

    Args:
        records: any contiguous buffer; not written meanwhile.
        record_bytes: of each record, without what follows it, 1 or more.
        stride_bytes: from the start of one to the start of the next, at least `record_bytes`.
        numbers: as little-endian i8[n] or u8[n], one for each record, summed behind its bytes.

    Raises:
        ConfigError: a record is empty or longer than the stride, or has no number.
    """
