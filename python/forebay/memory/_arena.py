"""The arena: memory that this process owns, which others may read."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, SupportsIndex

from forebay import _core
from forebay._usage import Figure, tell_by
from forebay.config import parse_bytes
from forebay.errors import ConfigError, Error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Arena"]

_numbers: Final = itertools.count(1)
_arenas: Final[weakref.WeakSet[Arena]] = weakref.WeakSet()
"""Those that somebody keeps, for the figures of this process."""


class Arena(_core.Arena):
    """Memory that this process owns and writes, and that other processes may map for reading.

    Nothing is mapped before the first allocation; then the arena grows by chunks of 64 MiB,
    or larger for larger blocks, up to its limit. Untouched pages of a chunk take no memory.
    Chunks in which nothing is allocated are given back once they make up more than a quarter of
    the limit, but for the last one.
    A block that the kernel may still write after its operation was given up stays in quarantine;
    while more than a quarter of the arena is there, allocations are refused.
    A forked child may not use its parent's arena and gets `StaleError`; it makes a new one.

    Threads: any. `with` closes at the end. See `close` for what happens to memory in use.

    Args:
        limit: the most that may be mapped (`arena_bytes_max`), as text such as "2GiB" or in bytes;
            4096 bytes or more.
        name: for messages and the system's memory maps, at most 100 bytes;
            "arena-1" and so on if left out.
        backing: which pages chunks are made of: "hugetlb", huge pages of 2 MiB from the machine's
            pool (`vm.nr_hugepages`); "transparent", pages that the kernel may join to huge ones;
            "pages" of 4 KiB; or "auto", the first of these that is to be had when a chunk is made.
            What it became is in `backing`, `stats()` and the repr, with the reason.
        populate: have all pages of a chunk made when it is mapped, not each when it is first
            touched: 17 us for 64 KiB, or the end of the process where the machine has none left.

    Raises:
        ConfigError: the limit is no size or below 4096 bytes, the name cannot be one, or
            there is no such backing.
    """

    __slots__ = ()

    def __new__(
        cls,
        limit: str | int,
        *,
        name: str | None = None,
        backing: Literal["auto", "hugetlb", "transparent", "pages"] = "auto",
        populate: bool = False,
    ) -> Self:
        """Make an arena; costs no memory yet."""
        chosen = f"arena-{next(_numbers)}" if name is None else name
        arena = super().__new__(cls, parse_bytes(limit), chosen, backing, populate)
        _arenas.add(arena)
        return arena

    def empty(
        self, shape: SupportsIndex | Sequence[SupportsIndex], dtype: npt.DTypeLike = float
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """Make a numpy array in the arena; what it holds is undefined.

        Args:
            shape: a number or a sequence of numbers, 0 or more.
            dtype: what `numpy.dtype` takes, without Python objects in it; float64 unless given.

        Returns:
            A writable C-contiguous array of that shape. It and all views of it keep the block;
            with the last of them the memory goes back. They outlive the arena.

        Raises:
            ConfigError: a dimension is negative, or the dtype holds Python objects.
            LimitError, ClosedError, StaleError, BrokenError: as `allocate`.

        Threads: any. Cost: some microseconds; numpy is imported on first use.
        """
        import numpy as np

        kind = np.dtype(dtype)
        sizes = _sizes(shape)
        if kind.hasobject:
            raise ConfigError(
                f"arena {self.name!r}: dtype {kind} holds Python objects, which others cannot read"
            )
        if any(size < 0 for size in sizes):
            raise ConfigError(f"arena {self.name!r}: shape {tuple(sizes)} has a negative dimension")
        buffer = self.allocate(math.prod(sizes) * kind.itemsize)
        # Through an array of bytes, which holds an export for as long as it lives: `free` refuses.
        # Given the buffer or a memoryview, the constructor holds the object and lets the export go.
        return np.ndarray(sizes, kind, buffer=np.asarray(buffer))

    def __enter__(self) -> Self:
        """Return the arena itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the arena."""
        self.close()


def _sizes(shape: SupportsIndex | Sequence[SupportsIndex]) -> list[int]:
    if isinstance(shape, Sequence):
        return [operator.index(size) for size in shape]
    return [operator.index(shape)]


def _figures() -> Iterable[Figure]:
    """What the arenas of this process hold."""
    for arena in list(_arenas):
        with contextlib.suppress(Error):  # closed, or the parent's
            stats = arena.stats()
            live, quarantined = stats["live_bytes"], stats["quarantined_bytes"]
            yield "forebay_arena_bytes", ("live",), live - quarantined
            yield "forebay_arena_bytes", ("quarantined",), quarantined
            yield "forebay_arena_bytes", ("free",), stats["mapped_bytes"] - live


tell_by("memory", _figures)
