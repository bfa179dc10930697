"""Limits of what all connections of a process hold together."""

from __future__ import annotations

from collections.abc import Iterable

from forebay import _core
from forebay._usage import Figure, tell_by
from forebay.config import parse_bytes
from forebay.errors import ConfigError

__all__ = ["process_metrics", "set_process_limits"]


def set_process_limits(
    *, max_bytes: int | str | None = None, max_connections: int | None = None
) -> None:
    """Set what the connections of messages of this process may hold, and how many may be open.

    A limit that is not given stays as it is. At first they are a quarter of the memory that this
    process may use (its cgroup's limit or the machine's), and its limit of open files less 128.

    Args:
        max_bytes: received and not taken, queued for sending, and received of messages that are
            under way, all connections together; bytes, or text with a unit such as "2GiB". Above
            it, connections with 64 KiB or more of finished messages stop reading until a caller
            takes them, and `send` waits above the low mark of its outbox. Nothing is refused.
        max_connections: above it listeners stop accepting, and check again every 0.1 s; peers wait
            in the kernel's queue. `connect` does not wait for it.

    Raises:
        ConfigError: a limit is no size, or below 1.

    Affinity: any thread; holds at once, for every connection that there is.
    """
    wanted = None if max_bytes is None else parse_bytes(max_bytes)
    for name, value in (("max_bytes", wanted), ("max_connections", max_connections)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; give 1 or more")
    _core.limit_process(wanted, max_connections)


def process_metrics() -> dict[str, int]:
    """The limits of this process, and what counts against them.

    Keys: held_bytes (of each connection in steps of 64 KiB), max_bytes, connections,
    max_connections, held_back (how often a connection stopped reading because the process held too
    much), turned_back (how often a listener stopped accepting because too many were open).
    """
    return _core.process_metrics()


def _figures() -> Iterable[Figure]:
    """What all connections of this process have moved, and how many there are."""
    totals = _core.transport_totals()
    yield "forebay_transport_bytes_total", ("sent",), totals["sent_bytes"]
    yield "forebay_transport_bytes_total", ("received",), totals["received_bytes"]
    for scheme, connections in totals["connections"].items():
        yield "forebay_transport_connections", (scheme,), connections


tell_by("transport", _figures)
