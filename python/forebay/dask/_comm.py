"""A comm of `distributed` over a connection of ours."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from types import TracebackType
from typing import Any, ClassVar

import dask
from dask.utils import parse_bytes, parse_timedelta
from distributed.comm import core
from distributed.comm import utils as comm_utils
from distributed.comm.core import CommClosedError
from distributed.protocol.core import dumps, loads
from distributed.utils import offload

from forebay._core import MessageConnection, Waiting
from forebay.dask._packing import pack, unpack
from forebay.dask._weight import outweighs
from forebay.errors import Error

__all__ = ["LOGGER_NAME", "Comm", "TLSComm", "UnixComm", "handshake_timeout"]

CLOSE_TIMEOUT_S = 5.0
"""How long `close` waits for a peer that takes nothing of what is queued."""

LOGGER_NAME = "distributed.comm.forebay"
"""Dask's logging shows what lies below `distributed`, at INFO, and nothing of `forebay`."""

_log = logging.getLogger(LOGGER_NAME)


def handshake_timeout() -> float:
    """Seconds that a peer has for its handshake: Dask's `distributed.comm.timeouts.connect`."""
    configured = dask.config.get("distributed.comm.timeouts.connect")
    return float(parse_timedelta(configured, default="seconds"))


class Comm(core.Comm):
    """An established comm. `distributed.comm.Comm` says what each method does.

    A message is serialized by `distributed.protocol` alone.
    `write` waits until the message before it has left, but for 512 KiB, and does not wait for its
    own: the buffers of that are read until they have left, each is let go of then, and they must
    not change before, as with Dask's own comms. A caller that drops a message once it is written,
    as servers do with answers, does not hold it while it is sent; and one comm queues one message.
    Whatever interrupts a read or a write, cancellation included, closes the comm: a late
    answer could be taken for the next one.

    Args:
        connection: after its handshake; taken over.
        local_address: of this end, with its scheme; the other end calls it the same.
        peer_address: of the other one.
        deserialize: whether payloads are deserialized.
        extra: what `extra_info` returns.

    Affinity: the loop to which the connection is bound, and its thread.
    """

    max_shard_size: ClassVar[int] = parse_bytes(dask.config.get("distributed.comm.shard"))

    def __init__(
        self,
        connection: MessageConnection,
        local_address: str,
        peer_address: str,
        deserialize: bool = True,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self._connection = connection
        self._local_addr = local_address
        self._peer_addr = peer_address
        self._extra = extra or {}
        self._is_open = False
        self._is_closing = False
        self._sending: Waiting | None = None
        self._agreed: dict[str, Any] | None = None
        self._serializer_info: dict[str, Any] = {}
        super().__init__(deserialize=deserialize)
        self._finalizer = weakref.finalize(
            self, _close_dangling, connection, asyncio.get_running_loop(), repr(self)
        )
        self._finalizer.atexit = False

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def extra_info(self) -> dict[str, Any]:
        return self._extra

    async def read(self, deserializers: Any = None) -> Any:
        if self._is_closing:
            raise CommClosedError(f"in {self}: it was closed here")
        with _ClosedOnError(self):
            parts = await (self._connection.recv() if self._is_open else self._first())
        try:
            frames = unpack(parts)
            if self.allow_offload and self.deserialize and _is_large(parts):
                return await offload(loads, frames, self.deserialize, deserializers)
            return loads(frames, self.deserialize, deserializers)
        except EOFError as error:
            self.abort()
            raise CommClosedError(f"in {self}: garbled or truncated: {error}") from error

    async def _first(self) -> list[Any]:
        """The first message: Dask's handshake, for which there is a time."""
        try:
            async with asyncio.timeout(handshake_timeout()):
                parts: list[Any] = await self._connection.recv()
        except TimeoutError as error:
            raise CommClosedError(f"in {self}: the peer did not finish its handshake") from error
        self._is_open = True
        return parts

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        self._check_open()
        await self._has_sent()
        threshold = comm_utils.OFFLOAD_THRESHOLD
        options = (serializers, on_error, self._context(), self.max_shard_size)
        if threshold and self.allow_offload and outweighs(msg, threshold):
            frames = await offload(dumps, msg, *options)
        else:
            frames = dumps(msg, *options)
        self._check_open()  # it may have been closed meanwhile
        with _ClosedOnError(self):
            parts, sent_bytes = pack(frames)
            self._sending = self._connection.send(parts)
        return sent_bytes

    def _check_open(self) -> None:
        if self.closed():
            raise CommClosedError(f"in {self}: the peer is gone, or it was closed here")

    async def _has_sent(self) -> None:
        """Wait for the message before."""
        sending, self._sending = self._sending, None
        if sending is not None:
            with _ClosedOnError(self):
                await sending

    async def close(self) -> None:
        """Close it once all that is queued has left, or the peer takes nothing for 5 s.

        It is closed from now on to whoever reads or writes: what came after could be lost unseen.
        """
        self._finalizer.detach()
        self._is_closing = True
        flushing = asyncio.ensure_future(self._flushed())
        try:
            left_bytes = -1
            while not flushing.done() and self._queued_bytes() != left_bytes:
                left_bytes = self._queued_bytes()
                await asyncio.wait([flushing], timeout=CLOSE_TIMEOUT_S)
        finally:
            self._connection.close()
            flushing.cancel()

    async def _flushed(self) -> None:
        with contextlib.suppress(Error):
            await self._connection.flushed()

    def _queued_bytes(self) -> int:
        return self._connection.metrics()["outbox_bytes"]

    def abort(self) -> None:
        self._finalizer.detach()
        self._connection.close()

    def closed(self) -> bool:
        return self._is_closing or self._connection.closed

    def _context(self) -> dict[str, Any]:
        """What serializers get about both ends; the handshake sets it, once."""
        if self._agreed is not self.handshake_options:
            self._agreed = self.handshake_options
            self._serializer_info = {
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            }
        return self._serializer_info


class _ClosedOnError:
    """Closes a comm when its block is interrupted; an error of ours becomes Dask's."""

    __slots__ = ("_comm",)

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        self._comm.abort()
        if isinstance(error, Error):
            raise CommClosedError(f"in {self._comm}: {error}") from error


class TLSComm(Comm):
    """A comm over TLS."""


class UnixComm(Comm):
    """A comm over a Unix socket."""


def _is_large(parts: list[Any]) -> bool:
    """Whether a received message is deserialized in a thread; `parts` are bytes-like, of bytes."""
    threshold = comm_utils.OFFLOAD_THRESHOLD
    return bool(threshold) and sum(map(len, parts)) > threshold


def _close_dangling(
    connection: MessageConnection, loop: asyncio.AbstractEventLoop, name: str
) -> None:
    """Close what its owner forgot; runs in any thread, as the garbage collector does."""
    if connection.fileno() < 0:
        return
    if not connection.closed:  # Dask forgets comms whose peer is gone
        _log.warning("Closing dangling comm %s", name)
    if loop.is_closed():
        connection.close()
    else:
        loop.call_soon_threadsafe(connection.close)
