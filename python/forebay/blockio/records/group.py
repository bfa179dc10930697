"""Which appends share a commit: whatever arrived during the last one is the next group.

There is no timer: a lone append is a group by itself, and pays for its own syncs.
Of a circular file a group is limited, so a long append becomes several groups, in its order.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from forebay._numpy import Array

__all__ = ["Append", "Group", "Groups", "Part"]


@dataclass(slots=True, eq=False)
class Append:
    """One call of `append` on its way to the disk.

    Attributes:
        rows: the bytes of the records, as u1[n, record_bytes].
        future: of the task that awaits it, with its loop; None where a thread waits.
        loop: see there.
        first: number of its first record, once that is committed.
        committed: how many of its records are.
        error: why the others never will be.
    """

    rows: Array
    future: Future[int] | None = None
    loop: AbstractEventLoop | None = None
    first: int = -1
    committed: int = 0
    error: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.error is not None or self.committed == len(self.rows)

    def outcome(self) -> int:
        """The number of its first record; raises what kept it from being committed."""
        if self.error is not None:
            raise self.error
        return self.first


class Part(NamedTuple):
    """Rows `start` to `stop` of an append."""

    append: Append
    start: int
    stop: int


class Group(NamedTuple):
    """What is written under one commit.

    Attributes:
        parts: in their order in the file.
        n: records in all.
    """

    parts: list[Part]
    n: int


class Groups:
    """The queue of appends. Sans I/O; its owner has the lock.

    Args:
        max_group: records in a group; 0: any number.
    """

    def __init__(self, max_group: int) -> None:
        self._max_group = max_group
        self._waiting: deque[Append] = deque()
        self._current: Group | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, append: Append) -> None:
        """Queue an append of one record or more."""
        self._waiting.append(append)

    def begin(self) -> Group | None:
        """The next group; it stays queued until `settle`, `fail` or `abort`."""
        parts, room = [], self._max_group or None
        for append in self._waiting:
            left = len(append.rows) - append.committed
            taken = left if room is None else min(left, room)
            parts.append(Part(append, append.committed, append.committed + taken))
            if room is not None:
                room -= taken
                if not room:
                    break
        self._current = Group(parts, sum(part.stop - part.start for part in parts))
        return self._current if parts else None

    def settle(self, first: int) -> list[Append]:
        """The group is committed, its records from this number on; which appends are through."""
        for append, start, stop in self._taken():
            if append.first < 0:
                append.first = first
            append.committed = stop
            first += stop - start
        return self._gone()

    def fail(self, errors: Mapping[Append, BaseException]) -> list[Append]:
        """End appends that are not tried again; returns them."""
        self._current = None
        for append, error in errors.items():
            append.error = error
        return self._gone()

    def abort(self) -> None:
        """The group was not committed; its appends are tried again."""
        self._current = None

    def everything(self) -> list[Append]:
        """All that wait, those of the group first."""
        return list(self._waiting)

    def withdraw(self, append: Append) -> bool:
        """Take back an append that is not being written; what is committed of it stays."""
        writing = self._current is not None and any(
            part.append is append for part in self._current.parts
        )
        if writing or append not in self._waiting:
            return False
        self._waiting.remove(append)
        return True

    def _taken(self) -> list[Part]:
        assert self._current is not None, "a group was begun"
        parts, self._current = self._current.parts, None
        return parts

    def _gone(self) -> list[Append]:
        gone = [append for append in self._waiting if append.ended]
        self._waiting = deque(append for append in self._waiting if not append.ended)
        return gone
