"""Reports of progress, often enough for a person and rarely enough for a worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from forebay.executor.app.context import Context

T = TypeVar("T")

INTERVAL_S = 0.1
"""Seconds between two reports."""


class Count:
    """Counts what is done, and reports it at most once in `INTERVAL_S`, and at the end.

    Not thread-safe: one thread or task advances it.

    Attributes:
        done: how many there were.
        total: how many there will be; None: not known. May be set.
        message: shown beside the bar. May be set.
        unit: what is counted.
    """

    def __init__(self, context: Context, total: int | None, *, message: str, unit: str) -> None:
        self.done = 0
        self.total = total
        self.message = message
        self.unit = unit
        self._context = context
        self._next = 0.0
        self._told = -1

    def advance(self, count: int = 1) -> None:
        """Count some more."""
        self.done += count
        now = time.monotonic()
        if now >= self._next or self.done == self.total:
            self._next = now + INTERVAL_S
            self._tell()

    def _tell(self) -> None:
        self._told = self.done
        self._context.tell(self.done, self.total, self.message, self.unit)

    def _begin(self) -> None:
        self._next = time.monotonic() + INTERVAL_S
        self._tell()

    def _end(self) -> None:
        if self._told != self.done:
            self._tell()


class Progress(Count, Generic[T]):
    """What `Context.progress` returns: iterate it, or `advance` it."""

    def __init__(
        self,
        context: Context,
        iterable: Iterable[T] | None,
        total: int | None,
        *,
        message: str,
        unit: str,
    ) -> None:
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        super().__init__(context, total, message=message, unit=unit)
        self._iterable = iterable
        if iterable is None:
            self._begin()

    def __iter__(self) -> Iterator[T]:
        """Yield the items; one counts as done when the next is asked for."""
        if self._iterable is None:
            raise TypeError("this progress was given nothing to iterate; call advance()")
        self._begin()
        try:
            for item in self._iterable:
                yield item
                self.advance()
        finally:
            self._end()


class AsyncProgress(Count, Generic[T]):
    """The same for an asynchronous iterable."""

    def __init__(
        self,
        context: Context,
        iterable: AsyncIterable[T],
        total: int | None,
        *,
        message: str,
        unit: str,
    ) -> None:
        super().__init__(context, total, message=message, unit=unit)
        self._iterable = iterable

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield the items; one counts as done when the next is asked for."""
        self._begin()
        try:
            async for item in self._iterable:
                yield item
                self.advance()
        finally:
            self._end()
