"""A file of records of one size."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex

from forebay._numpy import Array, np
from forebay.blockio.records.append import Appender
from forebay.blockio.records.batches import batches
from forebay.blockio.records.commit import read_commit, shortage
from forebay.blockio.records.input import count_of, generator_of, numbers_of, rows_of
from forebay.blockio.records.layout import Layout
from forebay.blockio.records.open import Wanted, open_appending, open_reading
from forebay.blockio.records.read import Read, Reader
from forebay.blockio.records.sampler import ABANDONED_S, DRAWS_MAX, CrowdedError, Sampler, Window
from forebay.errors import BusyError, ClosedError, ConfigError, StaleError

if TYPE_CHECKING:
    import numpy.typing as npt

    from forebay.blockio import Queue
    from forebay.blockio.records.async_file import AsyncRecordFile
    from forebay.blockio.records.dataset import RecordDataset
    from forebay.memory import Arena

__all__ = ["RecordFile"]


class RecordFile:
    """Records of one dtype in one file: a replay buffer, rows of an embedding, a dataset.

    One RecordFile appends, any number read, in this process and in others.
    A crash leaves a clean prefix: every append that returned, and no torn record.

    `with` closes at the end; `async with` enters the asyncio face, `AsyncRecordFile`.

    Args:
        path: of the file.
        dtype: of a record, without Python objects; compared with the file's. None: whatever it is.
        mode: "r" reads; "a" appends too, and makes the file if it is missing.
        capacity: of a new file: the window is the last so many records, and older ones are
            overwritten. None: it grows without end, or what the file has.
        arena: for batches; one that is made on first use, at most an eighth of the memory.
        checksums: of a new file: keep a CRC-32C with each record, and check it whenever it is read.
        queue: of the reads; the process's own unless given.
        direct: whether to read with O_DIRECT. None: where stride and file system allow it, and
            appends are synced.
        sync: whether an append waits until it is on the disk. Without, it survives the death of
            this process, and not that of the machine.

    Raises:
        ConfigError: an argument is wrong, or the file is something else than it says.
        BusyError: mode "a", and another process or object appends.
        BrokenError: the file is damaged.
        OSError: it cannot be opened; FileNotFoundError where mode "r" finds none.

    Threads: any. A forked child may not use its parent's and gets `StaleError`; it opens its own.
    Source: docs/concepts/blockio/records.md.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dtype: npt.DTypeLike | None = None,
        *,
        mode: Literal["r", "a"] = "r",
        capacity: int | None = None,
        arena: Arena | None = None,
        checksums: bool = False,
        queue: Queue | None = None,
        direct: bool | None = None,
        sync: bool = True,
    ) -> None:
        if mode not in ("r", "a"):
            raise ConfigError(f"mode is {mode!r}; give 'r' to read, or 'a' to append and read")
        self.path = os.fspath(path)
        self.mode = mode
        self._pid = os.getpid()
        self._closed = False
        self._rng: np.random.Generator | None = None
        self._look_lock = threading.Lock()
        wanted = Wanted(dtype, capacity, checksums)
        opened = (open_appending if mode == "a" else open_reading)(self.path, wanted)
        self._face: AsyncRecordFile | None = None
        self._file, self._commit = opened.file, opened.commit
        self._appender = Appender(opened, sync=sync) if mode == "a" else None
        try:
            self._reader = Reader(
                opened,
                queue=queue,
                arena=arena,
                direct=direct if sync or direct is not None else False,
                newest=self._newest,
            )
        except BaseException:
            self._file.close()
            raise
        self._sampler = Sampler(self._reader)

    # What it is

    @property
    def layout(self) -> Layout:
        """What the header says."""
        return self._reader.layout

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of a record."""
        return self.layout.dtype

    @property
    def capacity(self) -> int | None:
        """Records in the window of a circular file; None where it grows."""
        return self.layout.capacity or None

    @property
    def checksums(self) -> bool:
        """Whether each record has a checksum."""
        return self.layout.checksums

    @property
    def direct(self) -> bool:
        """Whether reads bypass the page cache."""
        return self._reader.direct

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def appended(self) -> int:
        """Records appended since the file was made, as of the last refresh or own append."""
        return self._appender.commit.appended if self._appender else self._commit.appended

    @property
    def first(self) -> int:
        """Number of the oldest record of the window, counted from 0 since the file was made."""
        return self.layout.first(self.appended)

    def __len__(self) -> int:
        """Records in the window, as of the last refresh or own append."""
        return self._window().length

    def _window(self) -> Window:
        """The records that can be read: number of the oldest, and how many."""
        appended = self.appended
        first = self.layout.first(appended)
        return Window(first, appended - first)

    def refresh(self) -> int:
        """Read the newest commit of the appending process.

        Returns:
            The length of the window, which indices refer to from now on.

        Raises:
            ClosedError, StaleError: as of any other call.
            BrokenError: a commit block is damaged and may have counted more, or the file was cut.

        Cost: one read of 8 KiB from the page cache.
        """
        self._check()
        if self._appender is None:
            with self._look_lock:
                newest = read_commit(self._file.fileno(), self.path, self.layout)
                short = shortage(self._file.fileno(), self.path, self.layout, newest)
                if short is not None:
                    raise short
                self._commit = max(self._commit, newest)
        return len(self)

    # Appending

    def append(self, records: npt.ArrayLike) -> int:
        """Append a record or an array of records, and wait until they are on the disk.

        Threads that append at once share syncs: what arrives during a commit is the next one.
        All records of a call follow each other. A crash keeps all of them or none; of a call of
        more than `layout.max_group` records to a circular file it may keep the first groups.

        Args:
            records: of the file's dtype, shape () or (n,), and the shape of the dtype if it has
                one; not changed by others until this returns. Tuples and lists are converted.

        Returns:
            The number of the first one, counted from 0 since the file was made.

        Raises:
            BlockError: the disk is full or fails. The first `.index` records are in the file, the
                others are not; after a failed sync that is unknown, and the file has to be opened
                again before it takes more.
            BrokenError: a sync has failed before, or the file was cut short meanwhile.
            ConfigError: the file is open for reading, or these are no records of its dtype.
            ClosedError, StaleError: it was closed, or belongs to the parent of this process.

        Threads: any. Cancel: a signal handler that raises takes it back, unless it is being
        written: then it is committed all the same. Cost: two syncs, shared.
        """
        appender, rows = self._prepare(records)
        return appender.append(rows) if len(rows) else self.appended

    def _prepare(self, records: npt.ArrayLike) -> tuple[Appender, Array]:
        """The appender, and the records' bytes; raises what `append` raises before it begins."""
        self._check()
        if self._appender is None:
            raise ConfigError(f"record file {self.path} is open for reading; open it with mode='a'")
        return self._appender, rows_of(records, self.dtype, self.path)

    # Reading

    def gather(self, indices: npt.ArrayLike, out: Array | None = None) -> Array:
        """Read the records of these indices.

        Args:
            indices: integers of shape (n,); 0 is the oldest record of the window, -1 the newest.
                May repeat, in any order.
            out: array of the file's dtype and shape (n,) to read into; lent until this returns.

        Returns:
            `out`, or an array over a block of the arena: shape (n,) and that of the dtype, if it
            has one; writable, yours. It is valid for as long as you hold it or a view of it; then
            its memory goes back to the arena.

        Raises:
            OutOfRangeError: an index is outside of the window; it is an IndexError too.
            StaleError: a record was overwritten meanwhile; `refresh` and ask again.
            LimitError: the arena is full of batches that are held.
            BlockError: a record cannot be read, or its checksum is wrong; `.index` says which.
            ConfigError, ClosedError: the arguments are wrong; it was closed.

        Threads: any. Cost: about a system call per 64 records, no copy; with `out` a copy, where
        the stride is longer than a record.
        """
        self._check()
        numbers = numbers_of(indices, *self._window(), self.path)
        if out is not None:
            return self._reader.into(numbers, out)
        return self._reader.wait(self._plan(numbers))

    def sample(
        self, n: SupportsIndex, *, rng: np.random.Generator | None = None, prefetch: int = 2
    ) -> Array:
        """Draw records of the window, each with the same chance, with replacement.

        The batches are the same whatever `prefetch` is, also when records are appended between
        calls, or you use `rng` in between.

        Args:
            n: how many.
            rng: where the draws come from; one of the file's own, unless given.
            prefetch: batches of the calls to come that are read meanwhile; 0: none.

        Returns:
            An array as of `gather`. Records that are overwritten while they are read are refreshed
            away, and the whole batch is drawn again.

        Raises:
            ConfigError: the window is empty, or an argument is wrong.
            StaleError: the writer overwrote the batch 16 times in a row; give it more capacity.
            LimitError, BlockError, ClosedError: as `gather`.

        Threads: any; calls take turns for the draws and not for the reads.
        Cost: as `gather`; memory of `prefetch` further batches.
        """
        for left in reversed(range(DRAWS_MAX)):
            try:
                return self._reader.wait(self._wait_to_draw(n, rng, prefetch))
            except StaleError:
                if not left:
                    raise
                self.refresh()
        raise AssertionError("the last draw returns or raises")

    def _wait_to_draw(
        self, n: SupportsIndex, rng: np.random.Generator | None, prefetch: int
    ) -> Read:
        try:
            return self._draw(n, rng=rng, prefetch=prefetch)
        except CrowdedError as crowded:
            concurrent.futures.wait(crowded.reads, ABANDONED_S)
        return self._draw(n, rng=rng, prefetch=prefetch)

    def _draw(self, n: SupportsIndex, *, rng: np.random.Generator | None, prefetch: int) -> Read:
        """The read of a sample, begun ahead or only planned."""
        self._check()
        count, ahead = count_of(n, "n", 0), count_of(prefetch, "prefetch", 0)
        if rng is None:
            self._rng = self._rng or np.random.default_rng()
            rng = self._rng
        window = self._window()
        if not window.length:
            raise ConfigError(
                f"record file {self.path} has no records to draw from; append some, or refresh()"
            )
        return self._sampler.next(count, generator_of(rng), ahead, window)

    def batches(
        self,
        n: SupportsIndex,
        *,
        rng: np.random.Generator | None = None,
        epochs: int | None = None,
        shuffle: bool = True,
    ) -> Iterator[Array]:
        """Go through the window in batches, each record once an epoch.

        Args:
            n: records in a batch, 1 or more; the last one of an epoch may be shorter.
            rng: of the order; a new one with a random seed, unless given.
            epochs: how often; None: endlessly.
            shuffle: whether the order is random, and another one each epoch.

        Yields:
            Arrays as of `gather`; two further ones are read meanwhile. The window of an epoch is
            that of its begin.

        Raises:
            StaleError: a record of the epoch's window was overwritten; `sample` suits a file that
                is appended to.
            ConfigError, LimitError, BlockError, ClosedError: as `gather`.

        Cost: 8 bytes of memory for each record of the window.
        """
        self._check()
        return batches(
            self,
            count_of(n, "n", 1),
            rng=np.random.default_rng() if rng is None else generator_of(rng),
            epochs=None if epochs is None else count_of(epochs, "epochs", 0),
            shuffle=shuffle,
        )

    def dataset(self) -> RecordDataset:
        """A map-style dataset for a PyTorch DataLoader; opens the file by itself, where it is used.

        It can be pickled, and may be used in forked and spawned workers. Needs no torch.
        """
        from forebay.blockio.records.dataset import RecordDataset

        self._check()
        return RecordDataset(type(self), self.path, self.dtype, *self._window())

    def iterable_dataset(
        self, n: SupportsIndex, *, shuffle: bool = True, seed: int | None = None
    ) -> Any:
        """An IterableDataset of batches for a PyTorch DataLoader with `batch_size=None`.

        Workers share an epoch: each batch comes from one of them.

        Args:
            n: records in a batch.
            shuffle: whether the order is random.
            seed: of the order, the same each epoch; None: another one each epoch.

        Raises:
            ConfigError: PyTorch is not installed.
        """
        from forebay.blockio.records.dataset import torch_dataset

        return torch_dataset(self.dataset(), count_of(n, "n", 1), shuffle=shuffle, seed=seed)

    # Its end

    def close(self) -> None:
        """Close it: an append that is being committed ends, those that wait fail. Idempotent.

        Batches that are held stay valid.
        """
        if self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            self._sampler.forget()
            if self._appender is not None:
                self._appender.close()
            self._reader.close()
        self._file.close()

    def __enter__(self) -> Self:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    async def __aenter__(self) -> AsyncRecordFile:
        """Return the asyncio face."""
        from forebay.blockio.records.async_file import AsyncRecordFile

        if self._face is not None:
            raise BusyError(f"record file {self.path} has an asyncio face already; use that one")
        self._face = AsyncRecordFile(self)
        return self._face

    async def __aexit__(self, *_: object) -> None:
        """Close the file."""
        if self._face is not None:
            await self._face.aclose()

    def __repr__(self) -> str:
        """Path, dtype and length."""
        state = "closed" if self._closed else f"{len(self)} records"
        return f"<forebay.RecordFile {self.path!r} of {self.dtype}, {state}>"

    def _plan(self, numbers: Array) -> Read:
        """The read of records by their numbers."""
        self._check()
        return self._reader.plan(numbers)

    def _begin(self, numbers: Array) -> Read:
        """The same, begun in the background."""
        read = self._plan(numbers)
        self._reader.begin(read)
        return read

    def _end(self, read: Read) -> Array:
        """The batch of a read."""
        self._check()
        return self._reader.wait(read)

    def _newest(self) -> int:
        """Records appended as far as is known now; also what a writer elsewhere committed."""
        if self._appender is not None:
            return self._appender.commit.appended
        return read_commit(self._file.fileno(), self.path, self.layout).appended

    def _check(self) -> None:
        if self._closed:
            raise ClosedError(f"record file {self.path} is closed; open it again")
        if self._pid != os.getpid():
            raise StaleError(
                f"record file {self.path} was opened by process {self._pid}, not by its forked"
                f" child {os.getpid()}; open it in the child"
            )
