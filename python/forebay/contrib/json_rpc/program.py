"""Pooled programs that speak JSON-RPC 2.0 over stdio, one message to a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.contrib.json_rpc.link import JsonRpcLink, OnNotification
from forebay.contrib.json_rpc.session import Answer, JsonRpcError
from forebay.errors import BrokenError, ConfigError, DeadlineError, ProtocolError
from forebay.pool import Connected
from forebay.pool._internal import Deadline

if TYPE_CHECKING:
    from forebay.pool import AsyncLease, Lease, Started

__all__ = ["AsyncJsonRpcClient", "JsonRpc", "JsonRpcClient", "JsonRpcError"]


@dataclass(frozen=True)
class JsonRpc:
    """Connect to a program that speaks line-delimited JSON-RPC, as MCP servers do.

    For `Command(..., stdio=True, connect=JsonRpc())`. The lease hands out a `JsonRpcClient`, or an
    `AsyncJsonRpcClient` to `async with`.
    A call that timed out, was cancelled or broke has the program ended with the lease; an error
    that the program answered leaves it as it is.

    Args:
        initialize: parameters of the handshake of the Model Context Protocol: `initialize` is
            called with them and `notifications/initialized` is sent, once per program, before
            anybody gets it. None: no handshake.
        on_notification: called with method and parameters of each notification from the program,
            in the thread or on the loop that reads. Define it once, at the top level.
    """

    initialize: Mapping[str, Any] | None = None
    on_notification: OnNotification | None = None

    def __hash__(self) -> int:
        return hash((repr(self.initialize), self.on_notification))

    def __call__(self, started: Started) -> Connected:
        """Begin the conversation; what the pool calls once per program."""
        if started.stream is None:
            raise ConfigError("JsonRpc needs a Command with stdio=True, or one with '{fd}'")
        link = JsonRpcLink(started.stream, self.on_notification)
        if self.initialize is not None:
            try:
                deadline = Deadline(started.timeout)
                greeting = link.begin("initialize", (), dict(self.initialize))
                answer = link.wait(greeting, deadline)
                if answer.error is not None:
                    raise answer.error
                link.notify("notifications/initialized", (), {})
            except BaseException:
                link.close()
                raise

        def begin(lease: Lease, timeout: float | None) -> _Client:
            client = AsyncJsonRpcClient if lease.asyncio else JsonRpcClient
            return client(link, lease, timeout)

        return Connected(link, close=link.close, begin=begin, reusable=link.reusable)


class _Client:
    """What both faces have in common."""

    __slots__ = ("_lease", "_link", "_timeout")

    def __init__(self, link: JsonRpcLink, lease: Lease, timeout: float | None = None) -> None:
        self._link = link
        self._lease = lease
        self._timeout = timeout

    def _too_late(self, method: str) -> DeadlineError:
        return DeadlineError(
            f"{method!r} was not answered within {self._timeout} s; "
            "its program is ended with the lease",
            timeout=self._timeout,
        )

    @staticmethod
    def _result(answer: Answer) -> Any:
        if answer.error is not None:
            raise answer.error
        return answer.result


class JsonRpcClient(_Client):
    """Calls a leased program; ends with the lease.

    Thread-safe: threads may call at once, and the program answers in the order that it likes.
    """

    __slots__ = ()

    def call(self, method: str, /, *args: Any, **params: Any) -> Any:
        """Call a method, with parameters by position or by name, and wait for its result.

        For a limit: `backend.lease.options(timeout=5).client.call(...)`.

        Raises:
            JsonRpcError: the program answered with an error.
            DeadlineError: the timeout came.
            DiedError: the program ended.
            ProtocolError: it wrote what is no JSON-RPC.
            ConfigError: a parameter cannot be said in JSON; nothing was sent.
            StaleError: the lease has ended.
        """
        self._lease.check()
        deadline = Deadline(self._timeout)
        try:
            waiter = self._link.begin(method, args, params)
            try:
                return self._result(self._link.wait(waiter, deadline))
            finally:
                self._link.leave(waiter)
        except (DeadlineError, ProtocolError):
            raise
        except TimeoutError:
            raise self._too_late(method) from None
        except BrokenError as error:
            cause = self._lease.explain(error)
            raise cause from (None if cause is error else error)

    def notify(self, method: str, /, *args: Any, **params: Any) -> None:
        """Send a notification, which has no answer. Raises as `call`, as far as it fits."""
        self._lease.check()
        try:
            self._link.notify(method, args, params)
        except BrokenError as error:
            cause = self._lease.explain(error)
            raise cause from (None if cause is error else error)


class AsyncJsonRpcClient(_Client):
    """The same on an event loop; any number of tasks may call at once."""

    __slots__ = ()

    _lease: AsyncLease

    async def call(self, method: str, /, *args: Any, **params: Any) -> Any:
        """Call a method; as `JsonRpcClient.call`.

        Cancellation: the caller is free at once, the program is ended with the lease.
        """
        import asyncio

        self._lease.check()
        loop = asyncio.get_running_loop()
        try:
            self._link.bind(loop)
            future: asyncio.Future[None] = loop.create_future()
            waiter = self._link.begin(method, args, params, future)
            try:
                async with asyncio.timeout(self._timeout):
                    await future
                if waiter.answer is None:
                    assert self._link.fault is not None
                    raise self._link.fault
                return self._result(waiter.answer)
            finally:
                self._link.leave(waiter)
        except (DeadlineError, ProtocolError):
            raise
        except TimeoutError:
            raise self._too_late(method) from None
        except BrokenError as error:
            cause = await self._lease.explain(error)
            raise cause from (None if cause is error else error)

    async def notify(self, method: str, /, *args: Any, **params: Any) -> None:
        """Send a notification. Cancellation: it does not wait, so there is nothing to cancel."""
        import asyncio

        self._lease.check()
        try:
            self._link.bind(asyncio.get_running_loop())
            self._link.notify(method, args, params)
        except BrokenError as error:
            cause = await self._lease.explain(error)
            raise cause from (None if cause is error else error)
