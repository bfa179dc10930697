"""Finishing executors when the program ends, and disabling their copies when it forks.

At the end of the interpreter, before its threads are waited for, executors take no more calls and
finish those that they have, as those of `concurrent.futures` do.
A forked child's copies are unusable; the parent's are unaffected.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.executor.futures.calls import Calls

_calls: set[Calls] = set()
_inherited: list[Calls] = []
"""Calls of a parent process: a forked child never closes what they hold, which the parent uses."""
_exiting = False


def add(calls: Calls) -> None:
    """Finish these calls when the program ends."""
    if not _calls:
        _at_exit()
    _calls.add(calls)


def discard(calls: Calls) -> None:
    """Note that these calls are finished."""
    _calls.discard(calls)


def is_exiting() -> bool:
    """Whether the interpreter is shutting down."""
    return _exiting


_registered = False


def _at_exit() -> None:
    """Finish the calls before the interpreter waits for its threads.

    `atexit` comes after that wait; this hook is what the standard library's executors use.
    """
    global _registered
    if not _registered:
        _registered = True
        threading._register_atexit(_finish)  # type: ignore[attr-defined]


def _finish() -> None:
    global _exiting
    _exiting = True
    calls = list(_calls)
    for each in calls:
        each.leave()
    for each in calls:
        each.join()


def _after_fork() -> None:
    global _exiting
    _exiting = False
    for each in _calls:
        each.lock = threading.Lock()
        each.inherited = each.leaving = True
        _inherited.append(each)
    _calls.clear()


os.register_at_fork(after_in_child=_after_fork)
