"""What a forked child must not use of its parent's objects: sockets, threads, locks, rings.

What was the parent's is kept for good, because ending it in the child would touch the parent's.
"""

from __future__ import annotations

import functools
import logging
import os
import weakref
from typing import Any, Protocol

__all__ = ["stop_listening", "watch"]


_logger = logging.getLogger("forebay")


class Forgetful(Protocol):
    """What has a part that a child must not touch."""

    def _forget(self) -> object: ...


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parents: list[object] = []


def watch(made: Forgetful) -> None:
    """Have it let go, in a forked child, of what is its parent's."""
    _register()
    _watched.add(made)


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def stop_listening() -> None:
    """Have every later child let go of listening sockets and their locks, by its fork.

    Otherwise the children of a server that was killed keep its address: who connects is never
    answered, and no new server can listen there.
    """
    from forebay import _core

    os.register_at_fork(after_in_child=_core.stop_listening)


def _after_fork() -> None:
    for made in _watched:
        try:
            _of_parents.append(made._forget())
        except Exception:  # the others are to be forgotten all the same
            _logger.warning("a forked child keeps a part of %r of its parent", made, exc_info=True)
