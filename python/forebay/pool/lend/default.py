"""The pool that the whole process shares, made on first use."""

from __future__ import annotations

import os
import threading
from typing import overload

from forebay.pool.lend import home
from forebay.pool.lend.acquire import Acquire
from forebay.pool.lend.pool import ServicePool
from forebay.pool.programs.backend import ProgramAcquire
from forebay.pool.programs.command import Command
from forebay.pool.service.spec import S, Spec

_default: ServicePool | None = None
_lock = threading.Lock()


def default_pool() -> ServicePool:
    """The process-wide pool: the one that `set_default_pool` gave, or one with default settings.

    Inside a request of the executor it is the pool of the server, see `Context.acquire`.
    """
    global _default
    pool = _default
    if pool is None:
        with _lock:
            if _default is None:
                made = home.make_default
                _default = ServicePool() if made is None else made()
            pool = _default
    return pool


def set_default_pool(pool: ServicePool | None) -> None:
    """Use `pool` for `forebay.acquire` from now on.

    None: make a new one on next use. Closes nothing.
    """
    global _default
    with _lock:
        _default = pool


@overload
def acquire(
    what: Command, *, timeout: str | float | None = 30.0, by_value: bool = False
) -> ProgramAcquire: ...


@overload
def acquire(
    what: type[S] | Spec[S], *, timeout: str | float | None = 30.0, by_value: bool = False
) -> Acquire[S]: ...


def acquire(
    what: type[S] | Spec[S] | Command, *, timeout: str | float | None = 30.0, by_value: bool = False
) -> Acquire[S] | ProgramAcquire:
    """Lend a service of the process-wide pool; see `ServicePool.acquire`."""
    return default_pool().acquire(what, timeout=timeout, by_value=by_value)


def _after_fork() -> None:
    """A forked child starts without a default pool."""
    global _default, _lock
    _default = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
