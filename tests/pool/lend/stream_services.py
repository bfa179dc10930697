"""Services with streams that the tests lease; a module that a template can import."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import forebay


class Rows(forebay.Service):
    """Yields, and keeps nothing between leases."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def count(self, stop: int | None = None) -> Iterator[int]:
        try:
            yield from itertools.count() if stop is None else range(stop)
        finally:
            self.log.append("closed")

    def returned(self, stop: int) -> Any:
        return iter(range(stop))

    def slow(self, seconds: float) -> Iterator[int]:
        for number in itertools.count():
            yield number
            time.sleep(seconds)

    def fail_after(self, count: int) -> Iterator[int]:
        yield from range(count)
        raise ValueError(f"after {count}")

    def die_after(self, count: int) -> Iterator[int]:
        yield from range(count)
        os._exit(7)

    def hang_after(self, count: int) -> Iterator[int]:
        yield from range(count)
        time.sleep(3600)

    def logged(self) -> list[str]:
        return self.log


class ResetRows(Rows):
    """The same, reset between leases; it notes when."""

    def reset(self) -> None:
        self.log.append("reset")
