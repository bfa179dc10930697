"""Calls to one service over several connections, which come back when they break."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

from forebay import _forks
from forebay.errors import ConfigError
from forebay.rpc._connect import CONNECT_TIMEOUT_S, Target
from forebay.rpc._patience import Patience
from forebay.rpc._stream import CREDIT
from forebay.rpc._submission import Again, Submission
from forebay.rpc._threads import Attempts, ThreadChannels

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future
    from types import TracebackType

    from forebay.rpc._tasks import TaskAttempts, TaskChannels
    from forebay.transport import Tls

__all__ = ["Client"]


class Client:
    """Calls to the service at one URL.

    A call takes the connection with the fewest calls in flight; connections are opened when all
    others are busy. Where one breaks, or the server says goodbye, later calls go to a new one: it
    is dialled again, at growing random intervals, within the call's timeout (without one, within
    that for connecting). A call of which it is certain that it did not start (`BrokenError` with
    `.delivered` "no") is sent again; any other one raises, because it may have run.

    Any thread and any event loop may use it. Threads share at most `connections`, the tasks of each
    loop have as many of their own. It does not go along into a forked child.
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
        """Nothing is opened before the first call.

        Args:
            url: as of `rpc.connect`.
            connections: at most so many at once, 1 or more.
            tls: as of `rpc.connect`.
            token: as of `rpc.connect`.
            timeout: seconds for connecting and for the handshake, together.
            codec: as of `rpc.connect`.

        Raises:
            ConfigError: the URL, the codec, or an option that does not fit.
        """
        if connections < 1:
            raise ConfigError(f"connections={connections}: a client of {url} needs 1 or more")
        self._target = Target(url, tls, token, timeout, codec, meets=True)
        self._limit = connections
        self._threads = ThreadChannels(self._target, connections)
        self._loops: dict[AbstractEventLoop, TaskChannels] = {}
        # Order: this lock is taken alone.
        self._lock = threading.Lock()
        self._again = Again()
        self._closed = False
        _forks.watch(self)

    def call(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Call `method` and wait for its result; as `Channel.call`.

        Raises:
            BrokenError: the connection ended; with "no", nobody listened in time.
            ClosedError: the client was closed. Others as of `Channel.call`.

        Cost: that of `Channel.call`, and one system call to look at the socket before.
        """
        attempts = self._attempts(timeout)
        while True:
            with attempts as channel:
                left = attempts.patience.left()
                return channel.call(method, args, kwargs, timeout=left)

    async def acall(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Any:
        """Call `method` and await its result, on any event loop; errors as of `call`.

        Cancellation: safe, as of `Channel.acall`.
        """
        attempts = self._attempts_here(timeout)
        while True:
            async with attempts as channel:
                left = attempts.patience.left()
                return await channel.acall(method, args, kwargs, timeout=left)

    def submit(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Future[Any]:
        """Start a call and return its future; as `Channel.submit`, errors as of `call`.

        It returns when the kernel has the arguments. Cancelling a future cancels the call.
        """
        patience = Patience(self._target, timeout)
        call = (method, args, kwargs)
        submission = Submission(self._threads, self._again, call, patience)
        submission.send()
        return submission.future

    def stream(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        credit: int = CREDIT,
    ) -> Generator[Any, None, None]:
        """Call a method that yields, and iterate what it yields; as `Channel.stream`.

        The call is sent when the first item is asked for, and again as others are, until an item
        has come. Leave early by `close()`, which the last reference does too.
        """
        attempts = self._attempts(timeout)
        while True:
            with attempts as channel:
                left = attempts.patience.left()
                with channel.stream(method, args, kwargs, timeout=left, credit=credit) as items:
                    for item in items:
                        attempts.begun = True
                        yield item
                return

    async def astream(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        credit: int = CREDIT,
    ) -> AsyncGenerator[Any, None]:
        """As `stream`, on any event loop; leave early by `contextlib.aclosing`."""
        attempts = self._attempts_here(timeout)
        while True:
            async with attempts as channel:
                left = attempts.patience.left()
                stream = channel.astream(method, args, kwargs, timeout=left, credit=credit)
                async with stream as items:
                    async for item in items:
                        attempts.begun = True
                        yield item
                return

    def send_oneway(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        """Call `method` without an answer; as `Channel.send_oneway`.

        A server that leaves drops those that it has not started, and nobody learns of it.
        """
        attempts = self._attempts(None)
        while True:
            with attempts as channel:
                return channel.send_oneway(method, args, kwargs)

    def close(self) -> None:
        """Close every connection; calls in flight end with `ClosedError`. Idempotent.

        Threads: any. Connections of other event loops are closed in their next turn.
        """
        self._closed = True
        self._threads.close()
        self._again.close()
        with self._lock:
            groups = list(self._loops.values())
            self._loops.clear()
        if groups:
            here = _running_loop()
            for group in groups:
                if group.loop is here or group.loop.is_closed():
                    group.close()
                    continue
                with contextlib.suppress(RuntimeError):  # it was closed since, its sockets with it
                    group.loop.call_soon_threadsafe(group.close)

    async def aclose(self) -> None:
        """As `close`; it does not wait."""
        self.close()

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._target.url

    @property
    def connections(self) -> int:
        """How many are open and take calls."""
        with self._lock:
            return len(self._threads) + sum(map(len, self._loops.values()))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _forget(self) -> object:
        """In a forked child: a thread of the parent may have the lock."""
        parents, self._lock = self._lock, threading.Lock()
        return parents

    def _attempts(self, timeout: float | None) -> Attempts:
        return Attempts(self._threads, Patience(self._target, timeout))

    def _attempts_here(self, timeout: float | None) -> TaskAttempts:
        from forebay.rpc._tasks import TaskAttempts

        return TaskAttempts(self._channels_here(), Patience(self._target, timeout))

    def _channels_here(self) -> TaskChannels:
        """Those of the running loop."""
        from forebay.rpc._tasks import TaskChannels

        loop = _running_loop()
        assert loop is not None
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


def _running_loop() -> AbstractEventLoop | None:
    """The loop that runs in this thread, where asyncio is in use at all."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
