"""Calls of threads to one service, over several connections that are dialled again."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from forebay.rpc._stream import CREDIT
from forebay.rpc._target import CONNECT_TIMEOUT_S, client_target
from forebay.rpc._unanswered import no_end
from forebay.rpc.client.retry import Retry
from forebay.rpc.client.submission import Resender, Submission
from forebay.rpc.client.thread_channels import Attempts, ThreadChannels

if TYPE_CHECKING:
    from concurrent.futures import Future
    from types import TracebackType

    from forebay.transport import Tls

__all__ = ["Client"]


class Client:
    """Calls to the service at one URL.

    A call takes the connection with the fewest calls in flight; another one is opened when all
    are busy. Where one breaks, or the server says goodbye, later calls go to a new connection: the
    client dials again, at growing random intervals, within the call's timeout (without one, within
    that for connecting). A call that certainly did not start (`BrokenError` with `.delivered` "no")
    is sent again; any other one raises, because it may have run.

    Any thread may use it; threads share at most `connections`. `AsyncClient` is that for event
    loops. A forked child makes a client of its own.
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
        self._target = client_target(url, tls, token, timeout, codec, connections)
        self._channels = ThreadChannels(self._target, connections)
        self._resender = Resender()

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
            BrokenError: the connection ended; with "no", no server listened in time.
            ClosedError: the client was closed. Others as of `Channel.call`.

        Cost: that of `Channel.call`, and one system call to poll the socket before.
        """
        attempts = self._attempts(timeout)
        while True:
            with attempts as channel:
                left = attempts.retry.left()
                return channel.call(method, args, kwargs, timeout=left)

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
        retry = Retry(self._target, timeout)
        call = (method, args, kwargs)
        submission = Submission(self._channels, self._resender, call, retry)
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

        The call is sent when the first item is asked for, and again, as other calls are, until an
        item has come. Leave early by `close()`, which the last reference does too.
        """
        attempts = Attempts(self._channels, Retry(self._target, timeout, no_end))
        while True:
            with attempts as channel:
                left = attempts.retry.left()
                with channel.stream(method, args, kwargs, timeout=left, credit=credit) as items:
                    for item in items:
                        attempts.begun = True
                        yield item
                return

    def send_oneway(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        """Call `method` without an answer; as `Channel.send_oneway`.

        A server that leaves drops those that it has not started, without a notice.
        """
        attempts = self._attempts(None)
        while True:
            with attempts as channel:
                return channel.send_oneway(method, args, kwargs)

    def close(self) -> None:
        """Close every connection; calls in flight end with `ClosedError`. Idempotent.

        Threads: any.
        """
        self._channels.close()
        self._resender.close()

    @property
    def url(self) -> str:
        """Where the service is."""
        return self._target.url

    @property
    def connections(self) -> int:
        """How many are open and take calls."""
        return len(self._channels)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _attempts(self, timeout: float | None) -> Attempts:
        return Attempts(self._channels, Retry(self._target, timeout))
