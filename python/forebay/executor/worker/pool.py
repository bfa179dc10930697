"""The pool of a worker: the server's, lent over its socket."""

from __future__ import annotations

import bisect
import contextlib
import contextvars
import time
from typing import Any

from forebay._usage import Key
from forebay.errors import DeadlineError
from forebay.pool._internal import make_default_by

_leases: contextvars.ContextVar[set[Tracked]] = contextvars.ContextVar("forebay_request_leases")
"""What a request has acquired and not given back, for requests that run side by side."""

POOL = "server"
"""Of the label `pool`: the one whose services the server lends."""

BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
"""Upper bounds in seconds, as in crates/executor/src/usage/families.rs."""


class Acquires:
    """How often this worker acquired a service of the server, and how long that took.

    Each count is changed by one statement without a call in it, within which CPython does not
    change threads.
    """

    __slots__ = ("_counts", "_results", "_seconds")

    def __init__(self) -> None:
        self._results = {"ok": 0, "timeout": 0, "failed": 0}
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def note(self, began: float) -> None:
        """One has ended that began then, by `time.perf_counter`."""
        took = time.perf_counter() - began
        at = bisect.bisect_left(BOUNDS, took)
        self._results["ok"] += 1
        self._counts[at] += 1
        self._seconds += took

    def note_failed(self, error: BaseException) -> None:
        """One gave no service."""
        result = "timeout" if isinstance(error, DeadlineError) else "failed"
        self._results[result] += 1

    def figures(self) -> dict[Key, float | list[float]]:
        """The counts so far; nothing before the first."""
        if not any(self._results.values()):
            return {}
        figures: dict[Key, float | list[float]] = {
            ("forebay_pool_acquires_total", (POOL, result)): count
            for result, count in self._results.items()
        }
        figures["forebay_pool_acquire_seconds", (POOL,)] = [*self._counts, self._seconds]
        return figures


ACQUIRES = Acquires()
"""Those of this process, whose only pool of the server it is."""


class WorkerPool:
    """The pool of `forebay.acquire` and `ctx.acquire` inside a request.

    Connects on first use. A lease ends with the request that acquired it, at the latest.

    Args:
        path: the socket of the server's lender.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.leases: set[Tracked] = set()
        """What was acquired and not given back, if one request runs at a time."""
        self._shared: Any = None

    def install(self) -> None:
        """Make this the default pool of this process, from its first use on."""
        make_default_by(lambda: self)

    def acquire(self, what: Any, *, timeout: float | None = 30.0, by_value: bool = False) -> Any:
        """As `ServicePool.acquire`."""
        acquired = self._pool().acquire(what, timeout=timeout, by_value=by_value)
        return Tracked(acquired, _leases.get(self.leases))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool(), name)

    def _pool(self) -> Any:
        if self._shared is None:
            from forebay.pool import SharedPool

            self._shared = SharedPool(self.path)
        return self._shared


class Tracked:
    """A context manager that acquires a service, and notes the lease for the request."""

    __slots__ = ("_acquired", "_leases")

    def __init__(self, acquired: Any, leases: set[Tracked]) -> None:
        self._acquired = acquired
        self._leases = leases

    def __enter__(self) -> Any:
        began = time.perf_counter()
        try:
            proxy = self._acquired.__enter__()
        except BaseException as error:
            ACQUIRES.note_failed(error)
            raise
        ACQUIRES.note(began)
        self._leases.add(self)
        return proxy

    def __exit__(self, *how: object) -> None:
        self._leases.discard(self)
        self._acquired.__exit__(*how)

    async def __aenter__(self) -> Any:
        began = time.perf_counter()
        try:
            proxy = await self._acquired.__aenter__()
        except BaseException as error:
            ACQUIRES.note_failed(error)
            raise
        ACQUIRES.note(began)
        self._leases.add(self)
        return proxy

    async def __aexit__(self, *how: object) -> None:
        self._leases.discard(self)
        await self._acquired.__aexit__(*how)

    def end(self) -> None:
        """End the lease if the request has not."""
        with contextlib.suppress(Exception):  # its service or the lender has ended
            self._acquired.__exit__(None, None, None)


def begin_leases() -> set[Tracked]:
    """Note acquired services in this context from now on."""
    leases: set[Tracked] = set()
    _leases.set(leases)
    return leases


def end_leases(leases: set[Tracked]) -> None:
    """End the leases that a request has left."""
    while leases:
        leases.pop().end()
