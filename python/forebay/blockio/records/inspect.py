"""The content of a record file, checked on request."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from forebay._numpy import Array, np
from forebay.blockio.records.commit import read_blocks
from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.layout import VERSION, describe
from forebay.blockio.records.lock import holder
from forebay.errors import BlockError, ConfigError, StaleError

__all__ = ["inspect", "verify"]

VERIFY_BYTES = 8 << 20
"""Records are verified in reads of about this size."""


def inspect(path: str) -> dict[str, Any]:
    """What header and commit blocks of a file say, as JSON can hold it.

    Raises:
        ConfigError: it is no record file.
        BrokenError: it is damaged, so that its content is unknown.
        OSError: it cannot be opened.
    """
    with RecordFile(path) as file, open(path, "rb") as raw:
        layout, descriptor = file.layout, raw.fileno()
        size = os.fstat(descriptor).st_size
        return {
            "path": path,
            "format": VERSION,
            "dtype": describe(layout.dtype),
            "record_bytes": layout.record_bytes,
            "stride_bytes": layout.stride_bytes,
            "checksums": layout.checksums,
            "capacity": file.capacity,
            "slots": layout.slots or None,
            "records": len(file),
            "first": file.first,
            "appended": file.appended,
            "commits": [
                None
                if block.commit is None
                else block.commit._asdict() | {"damaged_copies": block.damaged, "torn": block.torn}
                for block in read_blocks(descriptor)
            ],
            "size_bytes": size,
            "uncommitted_bytes": 0
            if layout.capacity
            else max(0, size - layout.data_bytes(file.appended)),
            "direct": file.direct,
            "appended_by_pid": holder(descriptor),
        }


def verify(path: str, report: Callable[[int, int], None]) -> tuple[int, list[int]]:
    """Check the checksum of every record.

    Args:
        path: of the file; another process may append to it meanwhile.
        report: is called with how many of how many records are checked, after each read.

    Returns:
        How many records were checked, and the numbers of those whose checksum is wrong, or that
        cannot be read.

    Raises:
        ConfigError: the file has no checksums, or is no record file.
        BrokenError, OSError: as `inspect`.
    """
    with RecordFile(path) as file:
        if not file.checksums:
            raise ConfigError(
                f"record file {path} has no checksums to verify; make it with checksums=True"
            )
        step = max(1, VERIFY_BYTES // file.layout.stride_bytes)
        number, end, checked, wrong = file.first, file.appended, 0, list[int]()
        total = end - number
        while number < end:
            numbers = np.arange(number, min(number + step, end))
            try:
                wrong += _wrong(file, numbers)
            except StaleError:  # the writer was here: go on where it has not been
                file.refresh()
                number = max(number, file.first)
                continue
            checked += len(numbers)
            number += len(numbers)
            report(total - (end - number), total)
        return checked, wrong


def _wrong(file: RecordFile, numbers: Array) -> list[int]:
    """Numbers of the records that are not what was written."""
    reader = file._reader
    read = reader.plan(numbers)
    try:
        reader.wait(read)
    except BlockError as error:
        if error.errno == errno.EILSEQ:
            return [int(numbers[index]) for index in reader.wrong(read)]
        if len(numbers) == 1:
            return [int(numbers[0])]
        half = len(numbers) // 2  # one that cannot be read hides the others
        return _wrong(file, numbers[:half]) + _wrong(file, numbers[half:])
    return []
