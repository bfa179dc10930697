"""Connecting to a server that listens."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from forebay.rpc._target import CONNECT_TIMEOUT_S, Target

if TYPE_CHECKING:
    from types import TracebackType

    from forebay.rpc._async_channel import AsyncChannel
    from forebay.rpc._channel import Channel
    from forebay.transport import Tls

__all__ = ["PendingChannel", "connect"]


def connect(
    url: str,
    *,
    tls: Tls | None = None,
    token: str | bytes | None = None,
    timeout: float = CONNECT_TIMEOUT_S,
    codec: str = "msgpack",
) -> PendingChannel:
    """Connect to a server.

    `with connect(url) as channel` gives the face for threads, `async with` or `await` that of the
    running event loop, with the same names.

    Args:
        url: "unix:///path", "tcp://host:port" or "tls://host:port".
        tls: whom to believe and what to show, by `transport.Tls.client`; for `tls://` alone.
        token: what the server asks for, if it does.
        timeout: seconds for connecting and for the handshake, together.
        codec: "msgpack" for data; "pickle" for anything, only over `unix://` to a server of the
            same user.

    Raises:
        ConfigError: the URL, the codec, or an option that does not fit it.

    Entering raises BrokenError (no server listens there, it refuses this caller, or a certificate
    is refused; `.delivered` is "no"), ProtocolError (the other end does not speak Forebay) and
    DeadlineError (no answer in time).

    Over a Unix socket without a token it does not wait for the server, which may be busy.
    """
    return PendingChannel(Target(url, tls, token, timeout, codec))


class PendingChannel:
    """A channel to be: nothing happens before it is entered, awaited or opened."""

    __slots__ = ("_opened", "_target")

    def __init__(self, target: Target) -> None:
        self._target = target
        self._opened: Any = None

    def open(self) -> Channel:
        """Connect in this thread; the channel is the caller's to close."""
        return self._target.open()

    def __enter__(self) -> Channel:
        self._opened = self._target.open()
        return self._opened  # type: ignore[no-any-return]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def __await__(self) -> Generator[Any, None, AsyncChannel]:
        return self._open_on_loop().__await__()

    async def __aenter__(self) -> AsyncChannel:
        self._opened = await self._open_on_loop()
        return self._opened  # type: ignore[no-any-return]

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._opened.aclose()

    async def _open_on_loop(self) -> AsyncChannel:
        channel = await self._target.open_on_loop()
        return channel.on_loop
