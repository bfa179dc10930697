"""Processes that a request forks: they are no workers, though they may run the worker's code."""

from __future__ import annotations

import contextlib
import os
import signal

INTERRUPT_SIGNAL = signal.SIGRTMIN + 7
"""Tells a worker to look at its side socket."""

_HELD = frozenset({signal.SIGTERM, INTERRUPT_SIGNAL})

_forked = False


def guard_forks() -> None:
    """From now on, recognise forked children of this process, and let SIGTERM end them.

    The signals are blocked before a fork and let through once the child has its own handlers, so
    that one that comes earlier waits for these.
    """
    os.register_at_fork(before=_hold, after_in_parent=_let, after_in_child=_after_fork)


def is_forked() -> bool:
    """Whether this is a child that a request forked."""
    return _forked


def _hold() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)


def _let() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def _after_fork() -> None:
    global _forked
    _forked = True
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(INTERRUPT_SIGNAL, signal.SIG_IGN)
    _let()
