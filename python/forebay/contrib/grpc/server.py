"""Pooled gRPC servers, with one channel for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from forebay.contrib.grpc.outcome import Outcome
from forebay.errors import ConfigError
from forebay.pool import Connected

if TYPE_CHECKING:
    from forebay.pool import Lease, Started


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

    # Not by asking the channel: grpcio watches a channel's state from a thread, which fails where
    # the channel is closed meanwhile, and does not end with the server.
    wants_listener: ClassVar[bool] = True
    """Whatever else says that the program is ready, its socket accepts before this is asked."""

    def connect(self, started: Started) -> Connected:
        """Make a channel; it connects with the first call, and the server accepts by then.

        Raises:
            ConfigError: grpcio is not installed, or the server's address is unknown.
        """
        grpc = _grpc()
        outcome = Outcome()
        channel = grpc.insecure_channel(_target(started), options=self.options)
        try:
            from forebay.contrib.grpc.blocking_calls import Interceptor

            stub = self.stub(grpc.intercept_channel(channel, Interceptor(outcome)))
        except BaseException:
            channel.close()
            raise
        return _connected(stub, outcome, channel.close)

    async def connect_async(self, started: Started) -> Connected:
        """Make a channel for the running loop; as `connect`. Does not wait."""
        grpc = _grpc()
        from forebay.contrib.grpc.asyncio_calls import interceptors

        outcome = Outcome()
        channel = grpc.aio.insecure_channel(
            _target(started), options=self.options, interceptors=interceptors(outcome)
        )
        try:
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
