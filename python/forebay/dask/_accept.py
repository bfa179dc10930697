"""Accepting connections on an event loop, without closing them when it stops."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

__all__ = ["Acceptor", "Door"]

ACCEPTS_A_TURN = 64
PAUSE_S = 0.1
"""How long accepting pauses where the process has no descriptor left."""
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)

_log = logging.getLogger(__name__)


class Door(Protocol):
    """A listening socket."""

    def fileno(self) -> int: ...

    def accept(self) -> int | None:
        """Take a waiting connection's descriptor; None if there is none."""

    def close(self) -> None: ...


class Acceptor:
    """Runs a task for each connection that comes in at some doors.

    Args:
        name: what the log calls it.
        doors: nonblocking; closed by `stop`.
        serve: gets the descriptor of a connection, its own from then on. What it raises is logged.

    Affinity: the running loop, and its thread.
    """

    def __init__(
        self, name: str, doors: Sequence[Door], serve: Callable[[int], Awaitable[None]]
    ) -> None:
        self._name = name
        self._doors = doors
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = False
        self._stopped = False
        self._resume()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """Let nobody in any more. What runs goes on. Idempotent."""
        self._stopped = True
        self._pause()
        for door in self._doors:
            door.close()

    def _resume(self) -> None:
        if self._stopped or self._accepting:
            return
        self._accepting = True
        for door in self._doors:
            self._loop.add_reader(door.fileno(), self._accept, door)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            for door in self._doors:
                self._loop.remove_reader(door.fileno())

    def _accept(self, door: Door) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                descriptor = door.accept()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                _log.error("%s lets nobody in for %g s: %s", self._name, PAUSE_S, error.strerror)
                self._pause()
                self._loop.call_later(PAUSE_S, self._resume)
                return
            if descriptor is None:
                return
            task = self._loop.create_task(self._run(descriptor))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, descriptor: int) -> None:
        try:
            await self._serve(descriptor)
        except Exception:
            _log.exception("%s: a connection ended in an error", self._name)
