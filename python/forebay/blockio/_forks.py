"""What a forked child must not use of its parent's queues: threads, locks, rings of event loops.

The core tells a child by itself and makes rings of its own; this is about the Python side.
What was the parent's is kept for good, because ending it in the child would touch the parent's.
"""

from __future__ import annotations

import functools
import os
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.blockio._queue import Queue

__all__ = ["watch"]

_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_of_parents: list[Any] = []


def watch(queue: Queue) -> None:
    """Have `queue` start afresh in a forked child."""
    _register()
    _queues.add(queue)


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    _of_parents.extend([queue._forget() for queue in _queues])
