"""Records as a dataset for PyTorch's DataLoader, which asks for three methods, not for a class."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from forebay._numpy import Array, np
from forebay.blockio.records.batches import read_ahead
from forebay.blockio.records.input import numbers_of
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.blockio.records.file import RecordFile

__all__ = ["RecordDataset", "torch_dataset"]


class RecordDataset:
    """The records that a file had when this was made, by index. Made by `RecordFile.dataset`.

    It can be pickled, and opens the file where it is used: in a forked worker, a spawned one, here.

    Args:
        kind: opens the file.
        path: of the file.
        dtype: of a record.
        first: number of the record that index 0 means.
        length: how many records.

    Threads: any.
    """

    def __init__(
        self, kind: type[RecordFile], path: str, dtype: np.dtype[Any], first: int, length: int
    ) -> None:
        self._kind = kind
        self.path = os.path.abspath(path)
        self.dtype = dtype
        self.first = first
        self.length = length
        self._files: dict[int, RecordFile] = {}

    def __len__(self) -> int:
        """Records."""
        return self.length

    def __getitem__(self, index: SupportsIndex) -> Any:
        """One record: an array or a number, and of a structured dtype a dict of its fields.

        Raises:
            OutOfRangeError: there is no such record; it is an IndexError too.
            StaleError: it has been overwritten since.
        """
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """The records of a batch, in one read."""
        numbers = numbers_of(np.asarray(indices, np.int64), self.first, self.length, self.path)
        file = self._file()
        return items(file._end(file._begin(numbers)))

    def batches(self, plans: Iterable[Array]) -> Iterator[Array]:
        """Batches of the records with these indices, some of them read ahead."""
        numbers = (numbers_of(plan, self.first, self.length, self.path) for plan in plans)
        return read_ahead(self._file(), numbers)

    def close(self) -> None:
        """Close the file in this process; the next use opens it again. Idempotent."""
        while self._files:
            _, file = self._files.popitem()
            file.close()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open file."""
        return {**self.__dict__, "_files": {}}

    def __del__(self) -> None:
        """Close the file, since a DataLoader never does."""
        if hasattr(self, "_files"):
            self.close()

    def _file(self) -> RecordFile:
        """This process's own."""
        pid = os.getpid()
        file = self._files.get(pid)
        if file is None:
            opened = self._kind(self.path, self.dtype)
            file = self._files.setdefault(pid, opened)
            if file is not opened:  # another thread was faster
                opened.close()
        return file


def items(batch: Array) -> list[Any]:
    """The records of a batch one by one, in forms that torch's own `collate` takes."""
    names = batch.dtype.names
    if names is None:
        return list(batch)
    columns = [batch[name] for name in names]
    return [dict(zip(names, record, strict=True)) for record in zip(*columns, strict=True)]


def torch_dataset(
    dataset: RecordDataset, n: int, *, shuffle: bool, seed: int | None
) -> Any:  # torch's class is not known here
    """The records as torch's IterableDataset, in batches of `n`.

    Raises:
        ConfigError: PyTorch is not installed.
    """
    try:
        from forebay.blockio.records.torch_dataset import BatchDataset
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            "iterable_dataset() needs PyTorch, which is not installed; pip install torch, or use"
            " batches() without it"
        ) from error
    return BatchDataset(dataset, n, shuffle=shuffle, seed=seed)
