"""Connecting to a program: connect functions, and the clients that they make."""

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
    """A client of a program, and how the pool uses it.

    A connect function may return one of these, or the client alone. Then the client's method
    `close`, if it has one, is called at the end, and an exception that leaves the `with` block ends
    the program, because a call may still be under way.

    Args:
        client: the attribute `client` of the leased program.
        close: called once, when the service ends; may return an awaitable where the client
            belongs to an event loop.
        begin: called with the lease and its timeout when a holder first uses its client; returns a
            client for that lease alone, which can refuse calls after the lease has ended.
        reusable: called when a lease ends and before the next one begins: whether the program may
            be lent again; it may not if a call timed out or broke.
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
        """Whether the program may be lent again."""
        return self.reusable is None or self.reusable()


@runtime_checkable
class Connector(Protocol):
    """A connect function for threads and event loops; compared by value, as a part of the command.

    One with a true attribute `wants_listener` is called only once the program's Unix socket or port
    accepts connections, even if the program was reported ready before.
    """

    def connect(self, started: Started) -> Any:
        """A client for `with`, or a `Connected` with one."""

    async def connect_async(self, started: Started) -> Any:
        """A client for `async with`, or a `Connected` with one; it belongs to the running loop."""


Connect = Callable[["Started"], Any] | Connector


class Faces:
    """A connect function, used by threads and event loops."""

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
        """The key of a client: one client for each event loop if it belongs to one."""
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

        Cancellation: a client that a thread still makes is closed when it is made.
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
    """The `Connected` of what a connect function returned."""
    if isinstance(made, Connected):
        return made
    close = getattr(made, "close", None)
    return Connected(made, close=close if callable(close) else None)


def close_client(kept: Connected, loop: asyncio.AbstractEventLoop | None) -> None:
    """Close a client: here, or soon on its event loop if it belongs to one that runs.

    An error is logged: its program has ended already, and nobody waits.
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
"""Closes under way; each removes itself."""


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
