"""Rows of a record file as a tensor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from forebay._numpy import np
from forebay.errors import ConfigError, StaleError

if TYPE_CHECKING:
    from forebay.blockio import BlockFile, RecordFile

__all__ = ["FileTensor", "OpenedRows", "open_rows"]


class FileTensor:
    """A tensor whose rows are the records of a file, read when they are pulled, and never pushed.

    It may be larger than memory. Its rows are the records that were committed when it is published;
    publish it again to offer those that were appended since. Every shard of a server reads its own
    range, so the path is one that all of them see. It travels with `TensorServer.spec(...)`.

    Args:
        records: the path of a `forebay.RecordFile`, or one that is open, of which the path is used.
            One that is circular is refused: its records do not stay where they are.
        direct: whether to read with O_DIRECT. None: where stride and file system allow it.

    Cost: memory for rows on their way (`staging_bytes` of the server) when the first is published.
    """

    __slots__ = ("direct", "path")

    def __init__(
        self, records: str | os.PathLike[str] | RecordFile, *, direct: bool | None = None
    ) -> None:
        path: Any = getattr(records, "path", records)  # a RecordFile has one, pathlib's have none
        self.path: str = os.path.abspath(os.fspath(path))
        self.direct = direct

    def __repr__(self) -> str:
        return f"FileTensor({self.path!r})"


class OpenedRows(NamedTuple):
    """The rows of a file, as they lie there.

    Attributes:
        file: to read from; the caller closes it.
        dtype: of an element.
        shape: rows, and the shape of a row.
        offset: of row 0, in bytes.
        stride_bytes: from a row to the next.
        checksums: whether each row is followed by its CRC-32C.
    """

    file: BlockFile
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    stride_bytes: int
    checksums: bool


def open_rows(tensor: FileTensor) -> OpenedRows:
    """Open the file of a tensor.

    Raises:
        ConfigError: it is no record file, or a circular one.
        StaleError: it was replaced meanwhile.
        OSError: it cannot be opened.
    """
    from forebay.blockio import BlockFile, RecordFile

    path = tensor.path
    before = os.stat(path)
    with RecordFile(path, direct=tensor.direct) as records:
        layout, count, direct = records.layout, records.appended, records.direct
    if layout.capacity:
        raise ConfigError(
            f"record file {path} is circular: its records do not stay where they are;"
            " serve one without capacity, or pull from a tensor that you write"
        )
    file = BlockFile(path, direct=direct)
    after = os.fstat(file.fileno())
    if (before.st_dev, before.st_ino) != (after.st_dev, after.st_ino):
        file.close()
        raise StaleError(f"record file {path} was replaced while it was opened; try again")
    dtype = layout.dtype
    shape = (count, *dtype.shape)
    return OpenedRows(
        file, dtype.base, shape, layout.offset(0), layout.stride_bytes, layout.checksums
    )
