"""Starting the services of an application ahead of the requests that acquire them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forebay.executor.app.services import AppService

START_TIMEOUT_S = 60.0


def warm(services: Iterable[AppService], path: str) -> list[tuple[str, list[int]]]:
    """Acquire `min_idle` services of each kind at once, and give them back.

    Args:
        services: of an application.
        path: of the lender's socket.

    Raises:
        As acquiring: RemoteError (a constructor raised), DiedError, DeadlineError, LimitError.
    """
    from forebay.pool import SharedPool

    ready = []
    with SharedPool(path) as pool:
        for service in services:
            with contextlib.ExitStack() as held:
                pids = [
                    _pid(held.enter_context(pool.acquire(service.what, timeout=START_TIMEOUT_S)))
                    for _ in range(service.min_idle)
                ]
            ready.append((service.name, pids))
    return ready


def _pid(proxy: Any) -> int:
    """Of a service's proxy."""
    pid: int = proxy.lease.pid
    return pid
