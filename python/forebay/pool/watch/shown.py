"""A pool as a notebook shows it: its services, and who holds them for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._html import table
from forebay._units import duration
from forebay.errors import Error

if TYPE_CHECKING:
    from forebay.pool.lend.pool import ServicePool
    from forebay.pool.shared.pool import SharedPool

_HEAD = ("service", "process", "state", "holder", "for")


def pool_table(pool: ServicePool | SharedPool) -> str:
    """Its services as a table; of a pool that is closed or does not answer, only what it is."""
    try:
        stats, services = pool.stats(), pool.services()
    except (Error, OSError):
        return table(repr(pool), (), ())
    title = (
        f"{pool!r}: {stats['live']} live, {stats['idle']} idle, {stats['leased']} leased, "
        f"{stats['waiters']} callers wait"
    )
    rows = [
        (
            service["name"],
            service["pid"] or "",
            service["state"],
            service["holder"] or "",
            duration(service["age_s"]) if service["holder"] else "",
        )
        for service in services
    ]
    return table(title, _HEAD, rows)
