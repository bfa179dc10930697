"""The outcome of a call's parts, one for each shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forebay.errors import StaleError

if TYPE_CHECKING:
    from forebay._core import TensorBatch
    from forebay.tensor.prepare.ref import NameTable
    from forebay.tensor.prepare.work import Work

__all__ = ["Arrivals", "cancel", "raise_failure", "take_versions"]


def raise_failure(table: NameTable, work: Work, batches: Sequence[TensorBatch]) -> None:
    """Raise the error of the first item that failed, if one did.

    Args:
        table: forgets the tensors of a call that found one replaced.
        work: the call.
        batches: its parts, all of which are done, in the order of `work.parts`.
    """
    failures = []
    for shard, batch in zip(work.parts, batches, strict=True):
        failure = batch.first_failure()
        if failure is not None:
            entry, error = failure
            failures.append((_owner(work, shard, entry), shard, error))
    if not failures:
        return
    item, _, error = min(failures, key=lambda each: each[:2])
    raise noted(table, work, item, error)


def noted(table: NameTable, work: Work, item: int, error: Exception) -> Exception:
    """The error of one item, with a note that names the item."""
    if isinstance(error, StaleError):
        table.forget(work)
    word = "push" if work.pushes else "pull"
    error.add_note(f"{word} {item} of {len(work.arrays)}, of tensor {work.meanings[item].name!r}")
    return error


def take_versions(work: Work, batches: Sequence[TensorBatch], into: Any) -> None:
    """Write the version of each item; of one that had several shards, the latest."""
    if into is None:
        return
    into[...] = 0
    for shard, batch in zip(work.parts, batches, strict=True):
        for entry in range(len(batch)):
            item = _owner(work, shard, entry)
            into[item] = max(int(into[item]), batch.version(entry))


def cancel(batches: Sequence[TensorBatch]) -> None:
    """Cancel the batches that are not done."""
    for batch in batches:
        if not batch.done:
            batch.cancel()


class Arrivals:
    """Counts the parts of each item as they end, to find the items that are whole.

    Raises:
        The error of an item, when it is its turn.
    """

    def __init__(self, table: NameTable, work: Work) -> None:
        self._table = table
        self._work = work
        self._left = [0] * len(work.arrays)
        for shard, entries in work.parts.items():
            for entry in range(len(entries)):
                self._left[_owner(work, shard, entry)] += 1
        self.left = len(self._left)

    def take(self, shard: int, batch: TensorBatch, ended: Sequence[int]) -> list[int]:
        """Items that are whole now that these entries of a shard have ended."""
        whole = []
        for entry in ended:
            item = _owner(self._work, shard, entry)
            error = batch.failure(entry)
            if error is not None:
                raise noted(self._table, self._work, item, error)
            self._left[item] -= 1
            if not self._left[item]:
                whole.append(item)
        self.left -= len(whole)
        return whole


def _owner(work: Work, shard: int, entry: int) -> int:
    return work.owners[shard][entry] if work.owners else entry
