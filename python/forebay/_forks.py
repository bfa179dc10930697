"""Forgetting, in a forked child, its parent's sockets, threads, locks and rings.

The child keeps them alive and unused: to close them there would change the parent's.
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
    """An object with a part that a forked child must not touch."""

    def _forget(self) -> object: ...


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_of_parents: list[object] = []


def watch(made: Forgetful) -> None:
    """Call its `_forget` in every forked child, to drop what belongs to the parent."""
    _register()
    _watched.add(made)


@functools.cache
def _register() -> None:
    os.register_at_fork(after_in_child=_after_fork)


@functools.cache
def stop_listening() -> None:
    """Have every later child close the listening sockets and their locks, by its fork.

    Otherwise the children of a killed server keep its address: a client that connects gets no
    answer, and no new server can listen there.
    """
    from forebay import _core

    os.register_at_fork(after_in_child=_core.stop_listening)


def _after_fork() -> None:
    for made in _watched:
        try:
            _of_parents.append(made._forget())
        except Exception:  # the others must be forgotten too
            _logger.warning("a forked child keeps a part of %r of its parent", made, exc_info=True)
