"""The arena of a worker: memory of requests that other processes may map."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.memory import Arena

SHARE = 8
"""The arena is at most this part of the memory limit."""

_lock = threading.Lock()
_arena: Arena | None = None
_limit_bytes: int | None = None


def limit_arena(memory_bytes: int | None) -> None:
    """Set the memory limit, of which the arena may take its part; None: that of the machine."""
    global _limit_bytes
    _limit_bytes = None if memory_bytes is None else max(4096, memory_bytes // SHARE)


def worker_arena() -> Arena:
    """The arena of this process, made on first use. Thread-safe."""
    global _arena
    with _lock:
        if _arena is None:
            from forebay.memory import Arena

            _arena = Arena(_limit_bytes or _machine_bytes() // SHARE, name="requests")
        return _arena


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _after_fork() -> None:
    global _arena, _lock
    _arena = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
