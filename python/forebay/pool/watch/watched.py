"""Leases that last too long, or that nobody can end any more: who holds what, and where."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from forebay._package import PACKAGE
from forebay.errors import Error

if TYPE_CHECKING:
    from forebay.pool.lend.unsettled import Owner

HOLDERS_SHOWN = 4
"""Leases that a message names."""

_log = logging.getLogger(__name__)


class Watched:
    """Who holds the services of a pool, or of a link to a lender.

    With `leak_after` set, the place that acquired each lease is remembered, and a lease that lasts
    longer is reported once, when the pool is next used.
    A lease that was lost without being ended is found when Python collects it; its service is
    ended when the pool is next used.

    Attributes:
        leaks: leases reported so far, of both sorts.
    """

    __slots__ = ("_after_s", "_looking", "_lost", "_owner", "_places", "_told", "leaks")

    def __init__(self, owner: Owner, leak_after: float) -> None:
        self._owner = owner
        self._after_s = leak_after
        self._places: dict[tuple[int, int], str] = {}
        self._told: set[tuple[int, int]] = set()
        self._lost: deque[Any] = deque()
        self._looking = threading.Lock()
        self.leaks = 0

    def note(self, record: Any) -> None:
        """Note the place that acquired a new lease, and check the other leases.

        Those that share a service are one lease here, from the first to the last of them.
        """
        lease = record.handle.slot, record.handle.generation
        if self._after_s and lease not in self._places:
            self._places[lease] = _place()
        self.look()

    def lose(self, record: Any) -> None:
        """Note that an open lease was collected. The collector may call this at any moment."""
        self._lost.append(record)

    def look(self) -> None:
        """Report leases that last too long; end lost ones. One thread does it at a time."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(Error):  # the pool is closed, or its keeper is gone
                while self._lost:
                    self._end(self._lost.popleft())
                if self._after_s:
                    self._look_at_ages()
        finally:
            self._looking.release()

    def _end(self, record: Any) -> None:
        handle = record.handle
        self.leaks += 1
        _log.warning(
            "pool %r: a lease of %s (process %d)%s was never ended; its service is not lent again; "
            "use `with` or call lease.close()",
            self._owner.name,
            record.kind.name,
            record.pid,
            self._where((handle.slot, handle.generation)),
        )
        self._owner.give_back(record, True)

    def holders(self) -> str:
        """Who holds what for how long, for a message; empty where nothing is leased."""
        leased = [holding for holding in self._owner.holdings() if holding.pid]
        leased.sort(key=lambda holding: -holding.held_s)
        shown = [
            f"{name} (process {pid}) for {held_s:.1f} s{self._where(lease)}"
            for lease, pid, name, held_s in leased[:HOLDERS_SHOWN]
        ]
        if len(leased) > HOLDERS_SHOWN:
            shown.append(f"{len(leased) - HOLDERS_SHOWN} more")
        return f" ({', '.join(shown)})" if shown else ""

    def _look_at_ages(self) -> None:
        holdings = self._owner.holdings()
        out = {holding.lease for holding in holdings}
        for lease in [lease for lease in list(self._places) if lease not in out]:
            self._places.pop(lease, None)
            self._told.discard(lease)
        for lease, pid, name, held_s in holdings:
            known = lease in self._places and lease not in self._told
            if known and held_s > self._after_s:
                self._told.add(lease)
                self.leaks += 1
                _log.warning(
                    "pool %r: a lease of %s (process %d)%s has been out for %.1f s "
                    "(leak_after is %g s)",
                    self._owner.name,
                    name,
                    pid,
                    self._where(lease),
                    held_s,
                    self._after_s,
                )

    def _where(self, lease: tuple[int, int]) -> str:
        place = self._places.get(lease)
        return f" acquired at {place}" if place else ""


def _place() -> str:
    """The innermost frame outside of this package: file and line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
