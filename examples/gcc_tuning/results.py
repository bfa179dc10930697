"""A bounded cache of compile results, safe between threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypedDict

__all__ = ["Key", "Result", "ResultCache"]

Key = tuple[str, tuple[str, ...], bool]


class Result(TypedDict):
    """What one compilation gave.

    Keys:
        outcome: "good", "refused" (gcc says no), "crashed" (gcc died), "endless" (gcc missed its
            deadline) or "miscompiled" (the program fails its self-check).
        message: why, when it is not good.
        bytes: code, constants and initialised data of the object file; 0 when there is none.
        sections: size of each section of the object file.
        opcodes: number of instructions by mnemonic; empty when not asked for or not measurable.
        cached: whether it was answered from the cache.
    """

    outcome: str
    message: str
    bytes: int
    sections: dict[str, int]
    opcodes: dict[str, int]
    cached: bool


class ResultCache:
    """Keep the results that were used last, at most `size_max` of them.

    Keys hold the hash of the source, the flags in their order, and whether opcodes were counted.
    """

    def __init__(self, size_max: int = 4096):
        self._size_max = size_max
        self._results: OrderedDict[Key, Result] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._results)

    def get(self, key: Key) -> Result | None:
        """Return the result of `key` marked as cached, or None."""
        with self._lock:
            result = self._results.get(key)
            if result is None:
                return None
            self._results.move_to_end(key)
            return {**result, "cached": True}

    def put(self, key: Key, result: Result) -> None:
        """Keep a result; the one unused for longest goes when there are too many."""
        with self._lock:
            self._results[key] = result
            self._results.move_to_end(key)
            if len(self._results) > self._size_max:
                self._results.popitem(last=False)
