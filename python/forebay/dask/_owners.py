"""Whose certificates an `ssl.SSLContext` of Dask has.

Dask gives a backend a finished context, from which neither certificate nor key can be read back.
But whoever connects or listens has the `distributed.Security` that the context was made by, and is
found from what a backend gets:

- a listener gets a method of its scheduler, worker or nanny;
- a connector gets the context itself, the one that its owner's pool of connections has.
"""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from distributed import Client, Nanny, Scheduler, SpecCluster, Worker
from distributed import Security as DaskSecurity
from distributed.core import ConnectionPool

__all__ = ["Credentials", "behind_context", "behind_handler"]

Credentials = tuple[DaskSecurity, str]
"""A security, and the role of which a certificate is shown."""

SNAPSHOT_ATTEMPTS = 5
Member = TypeVar("Member")


def behind_handler(handle_comm: Callable[..., Any]) -> Credentials | None:
    """Those of the server whose method handles the comms of a listener."""
    return _of(getattr(handle_comm, "__self__", None))


def behind_context(context: ssl.SSLContext | None) -> Credentials | None:
    """Those of the server, client or cluster that connects with a context."""
    if context is None:
        return None
    for pool in _members(ConnectionPool._instances):
        if pool.connection_args.get("ssl_context") is context and pool.server is not None:
            return _of(pool.server())
    for cluster in _members(SpecCluster._instances):
        arguments = getattr(cluster.scheduler_comm, "connection_args", None) or {}
        if arguments.get("ssl_context") is context:
            return _of(cluster)
    return None


def _of(owner: object) -> Credentials | None:
    security = getattr(owner, "security", None)
    if not isinstance(security, DaskSecurity):
        return None
    return security, _role(owner)


def _role(owner: object) -> str:
    if isinstance(owner, Scheduler):
        return "scheduler"
    # A client that a task has made shows its worker's certificate; its name says so.
    of_worker = isinstance(owner, Client) and owner.id.startswith("Client-worker-")
    return "worker" if of_worker or isinstance(owner, Worker | Nanny) else "client"


def _members(instances: weakref.WeakSet[Member]) -> list[Member]:
    """Those that there are; other threads may add some meanwhile."""
    for _ in range(SNAPSHOT_ATTEMPTS):
        try:
            return list(instances)
        except RuntimeError:  # it changed
            continue
    return []
