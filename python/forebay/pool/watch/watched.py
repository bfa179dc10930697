"""Leases that last too long, or that nobody can end any more: who holds what, and where."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

from forebay._package import PACKAGE
from forebay.errors import Error

if TYPE_CHECKING:
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.lend.record import Record

HOLDERS_SHOWN = 4
"""Leases that a message names."""

_log = logging.getLogger(__name__)


class Watched:
    """Who holds the services of a pool.

    With `leak_after` set, the place that acquired each lease is remembered, and a lease that lasts
    longer is reported once, when the pool is next used.
    A lease that was lost without being ended is found when Python collects it; its service is
    ended when the pool is next used.

    Attributes:
        leaks: leases reported so far, of both sorts.
    """

    __slots__ = ("_after_ms", "_looking", "_lost", "_places", "_pool", "_told", "leaks")

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool
        self._after_ms = int(pool.config.leak_after * 1000)
        self._places: dict[tuple[int, int], str] = {}
        self._told: set[tuple[int, int]] = set()
        self._lost: deque[Record] = deque()
        self._looking = threading.Lock()
        self.leaks = 0

    def note(self, record: Record) -> None:
        """Note the place that acquired a new lease, and check the other leases."""
        if self._after_ms and record.kind.max_leases == 1:
            self._places[record.handle.slot, record.handle.generation] = _place()
        self.look()

    def lose(self, record: Record) -> None:
        """Note that an open lease was collected. The collector may call this at any moment."""
        self._lost.append(record)
        self._pool.watchful = True

    def look(self) -> None:
        """Report leases that last too long; end lost ones. One thread does it at a time."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            with contextlib.suppress(Error):  # the pool is closed, or its keeper is gone
                while self._lost:
                    self._end(self._lost.popleft())
                if self._after_ms:
                    self._look_at_ages()
        finally:
            self._looking.release()
        if self._pool.journal.logs:
            self._pool.journal.collect()

    def _end(self, record: Record) -> None:
        handle = record.handle
        self.leaks += 1
        _log.warning(
            "pool %r: a lease of %s (process %d)%s was never ended; its service is not lent again; "
            "use `with` or call lease.close()",
            self._pool.name,
            record.kind.name,
            record.pid,
            self._where(handle.slot, handle.generation),
        )
        self._pool.give_back(record, True)

    def holders(self) -> str:
        """Who holds what for how long, for a message; empty where nothing is leased."""
        leased = [service for service in self._pool.core.services() if service[3] and service[2]]
        leased.sort(key=lambda service: -service[5])
        shown = [
            f"{self._pool.kind_name(key)} (process {pid}) for {held_ms / 1000:.1f} s"
            f"{self._where(slot, generation)}"
            for slot, generation, pid, _, key, held_ms in leased[:HOLDERS_SHOWN]
        ]
        if len(leased) > HOLDERS_SHOWN:
            shown.append(f"{len(leased) - HOLDERS_SHOWN} more")
        return f" ({', '.join(shown)})" if shown else ""

    def _look_at_ages(self) -> None:
        services = self._pool.core.services()
        out = {service[:2] for service in services if service[3]}
        for lease in [lease for lease in list(self._places) if lease not in out]:
            self._places.pop(lease, None)
            self._told.discard(lease)
        for slot, generation, pid, lent, key, held_ms in services:
            lease = slot, generation
            known = lease in self._places and lease not in self._told
            if lent and known and held_ms > self._after_ms:
                self._told.add(lease)
                self.leaks += 1
                _log.warning(
                    "pool %r: a lease of %s (process %d)%s has been out for %.1f s "
                    "(leak_after is %g s)",
                    self._pool.name,
                    self._pool.kind_name(key),
                    pid,
                    self._where(slot, generation),
                    held_ms / 1000,
                    self._after_ms / 1000,
                )

    def _where(self, slot: int, generation: int) -> str:
        place = self._places.get((slot, generation))
        return f" acquired at {place}" if place else ""


def _place() -> str:
    """The innermost frame outside of this package: file and line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
