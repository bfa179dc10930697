"""Connecting to a program: what a connect function is given, and what the pool keeps of it."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from forebay.errors import ConfigError

if TYPE_CHECKING:
    import asyncio

    from forebay.pool.lend.lease import Lease
    from forebay.pool.programs.started import Started

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Connected:
    """A client of a program, and what the pool has to know of it.

    A connect function may return one of these, or the client alone; then the client's method
    `close` is called at the end where it has one, and a `with` block that an exception leaves ends
    the program, because nobody can tell what is still under way.

    Args:
        client: what the lease hands out, as `client`.
        close: called once, when the service ends; may return an awaitable where the client
            belongs to an event loop.
        begin: called with the lease, and the timeout that was asked for, where a holder first takes
            its client; returns one for that lease, so that what was kept beyond it can be refused.
        reusable: called when a lease ends and before the next one begins: whether the program may
            go on to the next holder; it may not where a call timed out or broke.
    """

    client: Any
    close: Callable[[], Any] | None = None
    begin: Callable[[Lease, float | None], Any] | None = None
    reusable: Callable[[], bool] | None = None

    def lend(self, lease: Lease, timeout: float | None) -> Any:
        """The client for a lease."""
        if self.begin is not None:
            return self.begin(lease, timeout)
        if timeout is not None:
            raise ConfigError(
                f"the pool cannot limit the calls of {type(self.client).__name__}; "
                "give the timeout to its own calls"
            )
        return self.client

    def fit(self) -> bool:
        """Whether the program may be lent on."""
        return self.reusable is None or self.reusable()


@runtime_checkable
class Connector(Protocol):
    """A connect function for both faces; compared by value, for it is part of the command's key.

    One with a true attribute `wants_listener` is asked only once the program's Unix socket or port
    accepts connections, whatever else says that it is ready.
    """

    def connect(self, started: Started) -> Any:
        """A client for `with`, or a `Connected` with one."""

    async def connect_async(self, started: Started) -> Any:
        """A client for `async with`, or a `Connected` with one; it belongs to the running loop."""


Connect = Callable[["Started"], Any] | Connector


class Faces:
    """A connect function, ready for both faces."""

    __slots__ = ("_blocking", "_connect", "_connector", "_per_loop", "wants_listener")

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connector: Connector | None = None
        self._blocking: Callable[[Started], Any] | None = None
        if isinstance(connect, Connector):
            self._connector, self._blocking = connect, connect.connect
        elif not inspect.iscoroutinefunction(connect):
            self._blocking = connect
        self._per_loop = self._connector is not None or self._blocking is None
        self.wants_listener = bool(getattr(connect, "wants_listener", False))

    def key(self, loop: asyncio.AbstractEventLoop | None) -> Any:
        """Under which a client is kept: one per event loop where it belongs to one."""
        return loop if self._per_loop else None

    def connect(self, started: Started) -> Connected:
        """Connect in this thread."""
        if self._blocking is None:
            raise ConfigError(
                f"{self._connect!r} is a coroutine function; use `async with`, "
                "or give a connector with both `connect` and `connect_async`"
            )
        return connected(self._blocking(started))

    async def connect_async(self, started: Started) -> Connected:
        """Connect on the running loop; a plain function in a thread, since it may block.

        Cancellation: what a thread still makes is closed when it is made.
        """
        import asyncio

        if self._connector is not None:
            return connected(await self._connector.connect_async(started))
        if self._blocking is None:
            return connected(await self._connect(started))  # type: ignore[operator]
        made = asyncio.get_running_loop().run_in_executor(None, self._blocking, started)
        try:
            return connected(await asyncio.shield(made))
        except asyncio.CancelledError:
            made.add_done_callback(_close_late)
            raise


def connected(made: Any) -> Connected:
    """What a connect function returned, as the pool keeps it."""
    if isinstance(made, Connected):
        return made
    close = getattr(made, "close", None)
    return Connected(made, close=close if callable(close) else None)


def close_client(kept: Connected, loop: asyncio.AbstractEventLoop | None) -> None:
    """Close a client: here, or on its loop, soon, where it belongs to one that runs.

    What it raises is logged: its program has ended already, and nobody waits.
    """
    if kept.close is None or (loop is not None and loop.is_closed()):
        return
    if loop is None:
        _close(kept)
        return
    try:
        loop.call_soon_threadsafe(_close_on_loop, kept, loop)
    except RuntimeError:
        _log.debug("the loop of a client was closed before the client")


def _close(kept: Connected) -> Any:
    try:
        return kept.close() if kept.close is not None else None
    except Exception:
        _log.warning("a client of a program that ended could not be closed", exc_info=True)
        return None


_closing: set[asyncio.Task[None]] = set()
"""Closes under way; each takes itself out."""


def _close_on_loop(kept: Connected, loop: asyncio.AbstractEventLoop) -> None:
    result = _close(kept)
    if inspect.isawaitable(result):

        async def finish() -> None:
            try:
                await result
            except Exception:
                _log.warning("a client of a program that ended could not be closed", exc_info=True)

        task = loop.create_task(finish())
        _closing.add(task)
        task.add_done_callback(_closing.discard)


def _close_late(made: asyncio.Future[Any]) -> None:
    if not made.cancelled() and made.exception() is None:
        _close(connected(made.result()))
