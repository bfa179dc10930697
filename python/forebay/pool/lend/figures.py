"""What the pools of this process hold and have lent, for its figures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay._usage import Figure, tell_by
from forebay.errors import Error

if TYPE_CHECKING:
    from forebay import _core

POOL = "worker"
"""Of the label `pool`: not the server's, which it counts itself."""

STATES = ("idle", "leased", "starting", "settling")

_open: set[_core.Pool] = set()
_lent_by_closed = 0
"""Leases of pools that were closed: they stay counted."""


def note_opened(core: _core.Pool) -> None:
    """Count a pool from now on, until it is closed."""
    _open.add(core)


def note_closed(core: _core.Pool) -> None:
    """Keep what a pool has lent; called before it is closed."""
    global _lent_by_closed
    if core in _open:
        _open.discard(core)
        with contextlib.suppress(Error):  # it ended by itself, or is the parent's
            _lent_by_closed += dict(core.stats())["leases"]


def _figures() -> Iterable[Figure]:
    """The services of all open pools, and the leases of all pools."""
    yield "forebay_pool_acquires_total", (POOL, "ok"), _lent_by_closed
    for core in list(_open):
        with contextlib.suppress(Error):  # it ended by itself, or is the parent's
            stats = dict(core.stats())
            yield "forebay_pool_acquires_total", (POOL, "ok"), stats["leases"]
            yield "forebay_pool_waiters", (POOL,), stats["waiters"]
            for state in STATES:
                yield "forebay_pool_services", (POOL, state), stats[state]


def _forget() -> None:
    """In a forked child: the pools, and what they have lent, are the parent's."""
    global _lent_by_closed
    _open.clear()
    _lent_by_closed = 0


tell_by("pool", _figures)
os.register_at_fork(after_in_child=_forget)
