"""Pooled gRPC servers: a channel and a stub for each, and what its calls tell of it."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.errors import ConfigError
from forebay.pool._connect import Connected
from forebay.pool._grpc_outcome import Outcome

if TYPE_CHECKING:
    from forebay.pool._lease import Lease
    from forebay.pool._started import Started


@dataclass(frozen=True, slots=True)
class Grpc:
    """Connect to a gRPC server. Needs the extra `grpc`: `pip install 'forebay[grpc]'`.

    For `Command([..., "{socket}"], connect=Grpc(EngineStub))`, or with `{port}`, a `Line`, a
    `PortFile`. The lease hands out the stub, unchanged; to `async with` one on a `grpc.aio`
    channel. One channel per service and face, kept between leases, closed with the service.
    A call that ended with DEADLINE_EXCEEDED, CANCELLED or UNAVAILABLE, or that has not ended, has
    the server ended with the lease; other codes are the server's own answers.
    The stub raises StaleError once its lease has ended.

    Args:
        stub: the generated stub class, or any function of a channel.
        options: of the channel, as gRPC takes them.
    """

    stub: Callable[[Any], Any]
    options: tuple[tuple[str, Any], ...] = ()

    def connect(self, started: Started) -> Connected:
        """Connect in this thread; waits until the channel is ready, or the server has ended.

        Raises:
            ConfigError: grpcio is not installed, or nobody knows where the server listens.
            TimeoutError: the channel did not become ready in time.
            ConnectionResetError: the server ended.
        """
        grpc = _grpc()
        outcome = Outcome()
        channel = grpc.insecure_channel(_target(started), options=self.options)
        try:
            _await_ready(grpc.channel_ready_future(channel), started)
            from forebay.pool._grpc_blocking import Interceptor

            stub = self.stub(grpc.intercept_channel(channel, Interceptor(outcome)))
        except BaseException:
            channel.close()
            raise
        return _connected(stub, outcome, channel.close)

    async def aconnect(self, started: Started) -> Connected:
        """Connect on the running loop; as `connect`. Cancellation: the channel is closed."""
        grpc = _grpc()
        from forebay.pool._grpc_asyncio import interceptors

        outcome = Outcome()
        channel = grpc.aio.insecure_channel(
            _target(started), options=self.options, interceptors=interceptors(outcome)
        )
        try:
            await _ready_or_ended(channel.channel_ready(), started.pid)
            stub = self.stub(channel)
        except BaseException:
            await channel.close()
            raise
        return _connected(stub, outcome, channel.close)


class Leased:
    """A stub for one lease: whatever it has, until that lease ends."""

    __slots__ = ("_lease", "_stub")

    def __init__(self, stub: Any, lease: Lease) -> None:
        self._stub = stub
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        self._lease.check()
        return getattr(self._stub, name)

    def __repr__(self) -> str:
        return f"<{self._stub!r} on lease: {self._lease!r}>"


def _connected(stub: Any, outcome: Outcome, close: Callable[[], Any]) -> Connected:
    def begin(lease: Lease, timeout: float | None) -> Leased:
        if timeout is not None:
            raise ConfigError("give the timeout to the call itself: stub.Method(request, timeout=)")
        return Leased(stub, lease)

    return Connected(stub, close=close, begin=begin, reusable=outcome.reusable)


def _grpc() -> Any:
    try:
        import grpc
        import grpc.aio
    except ImportError as error:
        raise ConfigError("Grpc needs the package grpcio: pip install 'forebay[grpc]'") from error
    return grpc


def _target(started: Started) -> str:
    if not started.address:
        raise ConfigError(
            "Grpc does not know where the server listens: name '{socket}' or '{port}' in the "
            "command, or give a Line with a group named 'port', or a PortFile"
        )
    return started.address


def _await_ready(ready: Any, started: Started) -> None:
    """Block until a channel is ready; a server that ends, ends the wait too."""
    told, process = os.eventfd(0, os.EFD_CLOEXEC), os.pidfd_open(started.pid)
    try:
        ready.add_done_callback(lambda _: os.eventfd_write(told, 1))
        poll = select.poll()
        poll.register(told, select.POLLIN)
        poll.register(process, select.POLLIN)
        fired = dict(poll.poll(None if started.timeout is None else started.timeout * 1000 + 1))
        if told not in fired:
            ready.cancel()
            os.eventfd_read(told)  # the callback has run: nobody writes to it any more
            raise _not_ready(ended=process in fired)
    finally:
        os.close(told)
        os.close(process)


async def _ready_or_ended(ready: Any, pid: int) -> None:
    """The same on the running loop."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    process = os.pidfd_open(pid)

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    loop.add_reader(process, end)
    waiting = asyncio.ensure_future(ready)
    try:
        await asyncio.wait((waiting, ended), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise _not_ready(ended=True)
        waiting.result()
    finally:
        loop.remove_reader(process)
        os.close(process)
        waiting.cancel()


def _not_ready(*, ended: bool) -> OSError:
    if ended:
        return ConnectionResetError("the gRPC server ended before its channel was ready")
    return TimeoutError("the gRPC channel was not ready in time")
