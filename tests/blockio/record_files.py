"""Records that say which they are, and files of them."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from forebay.blockio.records.file import RecordFile

PLAIN = np.dtype([("number", "<u8"), ("writer", "<u4"), ("body", "u1", (100,))])
"""Packed: 112 bytes."""

PADDED = np.dtype([("number", "<i8"), ("body", "<f4", (250,))])
"""1008 bytes, which are padded to two sectors."""


def numbered(start: int, n: int, dtype: np.dtype[Any] = PLAIN, writer: int = 0) -> Any:
    """Records `start` to `start + n`, whose every byte follows from their number."""
    records = np.zeros(n, dtype)
    records["number"] = np.arange(start, start + n)
    records["body"] = (records["number"] % 251)[:, None]
    if "writer" in (dtype.names or ()):
        records["writer"] = writer
    return records


def whole(records: Any) -> bool:
    """Whether each record is one that `numbered` made, and none is mixed of two."""
    return bool((records["body"] == (records["number"] % 251)[:, None]).all())


def everything(file: RecordFile) -> Any:
    """The window of a file."""
    return file.gather(np.arange(len(file)))


@contextlib.contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Give what counts a step; a failure says after how many it came, as the Rust models do."""
    steps = itertools.count(1)
    try:
        yield lambda: next(steps)
    except BaseException:
        sys.stdout.write(f"found after {next(steps) - 1} steps\n")
        raise
