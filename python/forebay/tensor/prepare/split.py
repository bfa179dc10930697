"""One item of a call, split by the ranges of rows that the shards hold.

A slice stays a slice at each shard, with a part of the memory. Row numbers are sorted into shards,
each with the positions of its rows in the memory; their order at a shard is that of the call, so
that the last of two pushes to one row stays the last.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from forebay._numpy import Array, np
from forebay.errors import OutOfRangeError

if TYPE_CHECKING:
    from forebay.tensor.prepare.ref import Meaning
    from forebay.tensor.prepare.rows import Wanted

__all__ = ["split"]


def split(
    meaning: Meaning, rows: Wanted, memory: Array, extra: tuple[Any, ...]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Shards, and the entry for each: at least one, so that a call for no rows ends too.

    Args:
        meaning: a tensor of several shards.
        rows: which.
        memory: room for them, or their values, C-contiguous.
        extra: what follows the memory in an entry.
    """
    first, count, lead = rows
    if count is None:
        yield from _numbers(meaning, first, memory, extra)
    elif count == 0:
        yield 0, (meaning.handle, 0, 0, memory, *extra)
    elif not lead:
        shard = bisect_right(meaning.starts, first) - 1
        yield shard, (meaning.handles[shard], first - meaning.starts[shard], 1, memory, *extra)
    else:
        yield from _slice(meaning, first, count, memory, extra)


def _slice(
    meaning: Meaning, first: int, count: int, memory: Array, extra: tuple[Any, ...]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    flat = memory.reshape(count, -1) if meaning.opaque else memory
    end = first + count
    shard = bisect_right(meaning.starts, first) - 1
    at = first
    while at < end:
        start, stop = meaning.starts[shard], min(meaning.starts[shard + 1], end)
        if stop > at:
            part = flat[at - first : stop - first]
            yield shard, (meaning.handles[shard], at - start, stop - at, part, *extra)
            at = stop
        shard += 1


def _numbers(
    meaning: Meaning, numbers: Array, memory: Array, extra: tuple[Any, ...]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    if not numbers.size:
        yield 0, (meaning.handle, 0, 0, memory, *extra)
        return
    signed, ends = numbers.view(np.int64), meaning.ends
    assert ends is not None, "it has several shards"
    owners = np.searchsorted(ends, signed, side="right")
    if owners.max() >= len(meaning.handles) or signed.min() < 0:
        outside = signed[(owners >= len(meaning.handles)) | (signed < 0)][0]
        raise OutOfRangeError(
            f"row {outside} is outside of tensor {meaning.name!r}, which has {meaning.rows} rows"
        )
    for shard, handle in enumerate(meaning.handles):
        positions = np.flatnonzero(owners == shard)
        if positions.size:
            local = signed[positions] - meaning.starts[shard]
            yield shard, (handle, local, None, memory, *extra, positions)
