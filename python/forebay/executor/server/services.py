"""The services of an application: lent to its workers by the server, and kept ready.

The server lends, as `forebay serve` without an application does, but never imports what it lends:
a worker that is forked for it starts the services (`Worker.warm`), and this module sees when they
are missing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from forebay.config import PoolConfig
from forebay.errors import ClosedError, Error
from forebay.pool import Event, Lender, SharedPool

LOOK_S = 1.0
"""Seconds between two looks at the services; only where an application wants some ready."""

TOUCH = 0.7
"""Part of the idle timeout after which the minimum is used once, so that it stays."""

PATIENCE_S = 30.0
"""Longest pause after services could not be started; it doubles from one second."""

RETIRE_S = 5.0
"""For the lender to close its socket, which takes microseconds."""

LISTEN_S = 0.05
"""Seconds between two looks at what has happened to services: a thousand leases are one wake-up."""

TOLD = {"lease": "service_leased", "release": "service_returned", "death": "service_ended"}
"""The events of the pool that are told, and what they are called among those of the server."""
POOL = "server"
"""Of the label `pool`: the one whose services this lends."""

STATES = ("idle", "leased", "starting", "settling")

_log = logging.getLogger(__name__)


class Note(Protocol):
    """Appends an event about a service to the server's feed."""

    def __call__(self, event: str, *, service: str, pid: int, cause: str | None = None) -> None:
        """Append it."""


class Services:
    """A lender in a thread of its own.

    Args:
        path: its socket.
        config: sizes and times.
        warm: called when services of the application are missing; returns at once.
        note: called for each lease, return and death of a service, from a thread of its own.
    """

    def __init__(
        self, path: Path, config: PoolConfig, warm: Callable[[], None], note: Note
    ) -> None:
        self.path = path
        self._config = config
        self._lender = Lender(path, config=config)
        self._pool = SharedPool(path)
        self._warm = warm
        self._note = note
        self._listener: threading.Thread | None = None
        self._wanted: Counter[str] = Counter()
        self._look_at = self._touch_at = 0.0
        self._pause = LOOK_S
        self._ending = False
        self._retires = False
        self._retired = threading.Event()
        """No further program is lent to."""
        self._thread = threading.Thread(target=self._run, name="forebay-lender")
        self._thread.start()

    def want(self, services: list[dict[str, Any]]) -> None:
        """Keep these ready, as the manifest names them, from now on."""
        wanted: Counter[str] = Counter()
        for it in services:  # of one class there may be several, with arguments of their own
            wanted[it["name"]] += it["min_idle"]
        self._wanted = +wanted
        self._look_at = 0.0
        if services and self._listener is None:
            # Not before: the lender numbers events for its readers alone.
            self._listener = threading.Thread(
                target=self._listen, name="forebay-services", daemon=True
            )
            self._listener.start()

    @property
    def pause(self) -> float | None:
        """Seconds until `look` is due; None: it is not needed."""
        return max(0.0, self._look_at - time.monotonic()) if self._wanted else None

    def look(self) -> None:
        """Have missing services started; due after `pause`."""
        now = time.monotonic()
        if not self._wanted or now < self._look_at:
            return
        missing = self._wanted - Counter(it["name"] for it in self.seen())
        if missing or now >= self._touch_at:
            # Until it is seen that they came, no other worker is sent for them.
            self._pause = min(PATIENCE_S, 2 * self._pause) if missing else LOOK_S
            self._look_at = now + self._pause
            idle = self._config.idle_timeout
            self._touch_at = now + idle * TOUCH if idle else float("inf")
            self._warm()
        else:
            self._pause = LOOK_S
            self._look_at = now + LOOK_S

    def seen(self) -> list[dict[str, Any]]:
        """Every service that lives."""
        try:
            return self._pool.services()
        except Error as error:
            _log.warning("the services cannot be listed: %s", error)
            return []

    def figures(self) -> dict[str, list[Any]]:
        """What lives and who waits, as gauges of metrics. Cost: a question to the lender."""
        stats = self._stats()
        if stats is None:
            return {}
        gauges = [
            ("forebay_pool_services", {"pool": POOL, "state": state}, stats[state])
            for state in STATES
        ]
        return {"gauges": [*gauges, ("forebay_pool_waiters", {"pool": POOL}, stats["waiters"])]}

    def leased(self) -> int:
        """How many are lent. Cost: a question to the lender."""
        stats = self._stats()
        return 0 if stats is None else int(stats["leased"])

    def _stats(self) -> dict[str, Any] | None:
        try:
            return self._pool.stats()
        except Error as error:
            _log.warning("the services cannot be counted: %s", error)
            return None

    def retire(self) -> None:
        """Lend on to those that are connected, and let the next server lend at this path."""
        self.leased()  # once it cannot be asked by its path any more, over the same connection
        self._retires = True
        self._stop()
        self._retired.wait(RETIRE_S)

    def close(self) -> None:
        """End every service and the lender. Idempotent."""
        if self._ending:
            return
        self._ending = True
        self._pool.close()
        self._stop()
        self._thread.join()
        self._lender.close()
        if self._listener is not None:
            self._listener.join()

    def _run(self) -> None:
        while not self._ending:
            try:
                self._lender.serve()
                if self._retires and not self._retired.is_set():
                    try:
                        self._lender.stop_listening()
                    finally:
                        self._retired.set()
            except Exception:  # a thread's last boundary: the others serve on
                _log.exception("the lender failed and is tried again")
                time.sleep(LOOK_S)

    def _listen(self) -> None:
        """Tell the feed what happens to services, until the pool is closed."""
        while not self._ending:
            try:
                with self._pool.events() as events:
                    while (event := events.next()) is not None:
                        self._tell(event)
                        time.sleep(LISTEN_S)
                        for event in events.taken():
                            self._tell(event)
            except ClosedError:
                return
            except Error as error:
                if self._ending:
                    return
                _log.warning("the events of the services are not told for now: %s", error)
                time.sleep(LOOK_S)

    def _tell(self, event: Event) -> None:
        told = TOLD.get(event.what)
        if told is not None:
            with contextlib.suppress(ClosedError):  # the dispatcher ends first
                self._note(told, service=event.service, pid=event.pid, cause=event.cause)

    def _stop(self) -> None:
        import os

        os.write(self._lender.stop_fd, b"e")
