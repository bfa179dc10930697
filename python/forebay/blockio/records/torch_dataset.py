"""Records as PyTorch's IterableDataset. Imported when it is asked for, since it imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from forebay._numpy import Array, np

if TYPE_CHECKING:
    from forebay.blockio.records.dataset import RecordDataset

__all__ = ["BatchDataset"]


class BatchDataset(IterableDataset):  # type: ignore[misc]
    """Batches of records, each from one of a DataLoader's workers; `batch_size=None` takes them.

    Args:
        dataset: the records.
        n: records in a batch; the last one may be shorter.
        shuffle: whether the order is random.
        seed: of the order, the same each epoch; None: another one each epoch.
    """

    def __init__(self, dataset: RecordDataset, n: int, *, shuffle: bool, seed: int | None) -> None:
        super().__init__()
        self.dataset = dataset
        self.n = n
        self.shuffle = shuffle
        self.seed = seed
        self._epoch = 0

    def __len__(self) -> int:
        """Batches of all workers together."""
        return -(-len(self.dataset) // self.n)

    def __iter__(self) -> Iterator[Any]:
        """This worker's batches: arrays, and of a structured dtype dicts of its fields."""
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        order = self._order(worker)
        starts = range(number * self.n, len(order), workers * self.n)
        for batch in self.dataset.batches(order[start : start + self.n] for start in starts):
            yield _fields(batch)

    def _order(self, worker: Any) -> Array:
        if not self.shuffle:
            return np.arange(len(self.dataset))
        return np.random.default_rng(self._seed(worker)).permutation(len(self.dataset))

    def _seed(self, worker: Any) -> int | list[int]:
        if self.seed is not None:
            return self.seed
        if worker is None:
            return int(torch.empty((), dtype=torch.int64).random_().item())
        # A worker's seed is one that all share, and its own number. It is of the first epoch alone
        # where workers persist; each of them begins every epoch.
        self._epoch += 1
        return [worker.seed - worker.id, self._epoch]


def _fields(batch: Array) -> Any:
    """What torch makes tensors of: fields apart and contiguous."""
    if batch.dtype.names is None:
        return np.ascontiguousarray(batch)
    return {name: np.ascontiguousarray(batch[name]) for name in batch.dtype.names}
