"""Calls of event loops to one service, over several connections that are dialled again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from forebay import _forks
from forebay.rpc._stream import CREDIT
from forebay.rpc._target import CONNECT_TIMEOUT_S, client_target
from forebay.rpc._unanswered import no_end
from forebay.rpc.client.retry import Retry
from forebay.rpc.client.task_channels import TaskAttempts, TaskChannels

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.transport import Tls

__all__ = ["AsyncClient"]


class AsyncClient:
    """What `Client` is for threads: the same names, awaited.

    Any event loop may use it; the tasks of each have at most `connections` of their own. A forked
    child makes a client of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 1,
        tls: Tls | None = None,
        token: str | bytes | None = None,
        timeout: float = CONNECT_TIMEOUT_S,
        codec: str = "msgpack",
    ):
        """Nothing is opened before the first call; arguments and errors as of `Client`."""
        self._target = client_target(url, tls, token, timeout, codec, connections)
        self._limit = connections
        self._loops: dict[asyncio.AbstractEventLoop, TaskChannels] = {}
        # Order: this lock is taken alone.
        self._lock = threading.Lock()
        self._closed = False
        _forks.watch(self)

    async def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Call `method` and await its result; errors as of `Client.call`.

        Cancellation: safe, as of `AsyncChannel.call`.
        """
        attempts = self._attempts(timeout)
        while True:
            async with attempts as channel:
                left = attempts.retry.left()
                return await channel.call(method, args, kwargs, timeout=left)

    async def stream(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        credit: int = CREDIT,
    ) -> AsyncGenerator[Any, None]:
        """As `Client.stream`; leave early by `contextlib.aclosing`."""
        attempts = TaskAttempts(self._channels_here(), Retry(self._target, timeout, no_end))
        while True:
            async with attempts as channel:
                left = attempts.retry.left()
                stream = channel.stream(method, args, kwargs, timeout=left, credit=credit)
                async with stream as items:
                    async for item in items:
                        attempts.begun = True
                        yield item
                return

    async def aclose(self) -> None:
        """Close every connection; calls in flight end with `ClosedError`. Idempotent; never waits.

        Loops: any. Connections of other loops are closed in their next turn.
        """
        self._close()

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._target.url

    @property
    def connections(self) -> int:
        """How many are open and take calls."""
        with self._lock:
            return sum(map(len, self._loops.values()))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._closed = True
        with self._lock:
            groups = list(self._loops.values())
            self._loops.clear()
        here = asyncio.get_running_loop()
        for group in groups:
            if group.loop is here or group.loop.is_closed():
                group.close()
                continue
            with contextlib.suppress(RuntimeError):  # closed since, its sockets with it
                group.loop.call_soon_threadsafe(group.close)

    def _forget(self) -> object:
        """In a forked child: a thread of the parent may have the lock."""
        parents, self._lock = self._lock, threading.Lock()
        return parents

    def _attempts(self, timeout: float | None) -> TaskAttempts:
        return TaskAttempts(self._channels_here(), Retry(self._target, timeout))

    def _channels_here(self) -> TaskChannels:
        """The channels of the running loop."""
        loop = asyncio.get_running_loop()
        known = self._loops.get(loop)
        if known is not None:
            return known
        with self._lock:
            ended = [group for other, group in self._loops.items() if other.is_closed()]
            for group in ended:
                del self._loops[group.loop]
            made = TaskChannels(self._target, self._limit, loop)
            if not self._closed:
                self._loops[loop] = made
        for group in ended:
            group.close()
        if self._closed:
            made.close()
        return made
