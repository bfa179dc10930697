"""The memory that is published where it lies, with the name of each range.

Two tensors over the same bytes would change without each other's version, and their pulls would be
of several at once. So memory has one name at a time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice

from forebay._numpy import Array
from forebay.errors import ConfigError

__all__ = ["MemoryRanges"]

Range = tuple[int, int, str]
"""First address, the address after the last, and the name."""


class MemoryRanges:
    """The memory of tensors, none of which overlap.

    Threads: one at a time.
    """

    def __init__(self) -> None:
        self._sorted: list[Range] = []
        self._by_name: dict[str, Range] = {}

    def check(self, name: str, array: Array) -> None:
        """Refuse memory of another tensor.

        Args:
            name: under which it is to be published; memory that has this name already is replaced.
            array: C-contiguous.

        Raises:
            ConfigError: it overlaps another one.
        """
        begin, end, _ = range_of(name, array)
        at = bisect_left(self._sorted, (begin,))
        if at and self._sorted[at - 1][1] > begin:
            at -= 1
        for other_begin, _, other in islice(self._sorted, at, None):
            if other_begin >= end or begin == end:
                return
            if other != name:
                raise ConfigError(
                    f"tensor {name!r} would lie in memory of tensor {other!r}, where a push to one"
                    f" changes the other without its version; drop {other!r} first, or give a copy"
                )

    def put(self, name: str, array: Array) -> None:
        """Remember where a tensor lies, in place of where it lay before."""
        self.take(name)
        if array.nbytes:
            found = self._by_name[name] = range_of(name, array)
            insort(self._sorted, found)

    def take(self, name: str) -> None:
        """Forget it, if it is known."""
        found = self._by_name.pop(name, None)
        if found is not None:
            del self._sorted[bisect_left(self._sorted, found)]


def range_of(name: str, array: Array) -> Range:
    """Where a C-contiguous array lies."""
    begin: int = array.__array_interface__["data"][0]
    return begin, begin + array.nbytes, name
