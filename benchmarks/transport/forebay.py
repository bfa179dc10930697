"""Ours, through what `forebay.transport` offers to everybody."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.transport.certificates import Certificates
from benchmarks.transport.side import Handler, Link, Stream, event_loop

if TYPE_CHECKING:
    from typing_extensions import Buffer

TAKEN_MAX = 250  # two such lists live at a time: fewer than make CPython look for cycles


class Side:
    """`listen` and `connect`.

    Args:
        scheme: "tcp", "tls", "unix" or "shm".
        loop: "forebay" for our own, "asyncio" or "uvloop".
        spin_us: how long our loop looks for events before it sleeps.
        native: whether the echo is answered without Python.
    """

    def __init__(self, scheme: str, loop: str, *, spin_us: int, native: bool) -> None:
        from forebay import transport

        self._transport: Any = transport
        self._loop = loop
        self._spin_us = spin_us
        self._native = native
        self._certificates = Certificates.make() if scheme == "tls" else None
        if scheme in ("tcp", "tls"):
            self._url = f"{scheme}://127.0.0.1:0"
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="forebay-bench-")
            self._url = f"{scheme}://{Path(self._folder.name) / 'socket'}"

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that was asked for."""
        if self._loop == "forebay":
            spin = {"spin_us": self._spin_us} if self._spin_us else {}
            loop: asyncio.AbstractEventLoop = self._transport.new_event_loop(**spin)
            return loop
        return event_loop(self._loop)

    async def listen(self, handler: Handler) -> str:
        """Listen on a free port, or a path of our own; a native echo needs no handler."""

        async def handle(connection: Any) -> None:
            await handler(_link(connection))

        options: dict[str, Any] = {} if self._native else {"handler": handle}
        if self._native:
            options["native"] = importlib.import_module("forebay.transport.native").Echo()
        if self._certificates:
            chain, key = self._certificates.chain, self._certificates.key
            options["tls"] = self._transport.Tls.server(cert=chain, key=key)
        self._listener = await self._transport.listen(self._url, **options)
        url: str = self._listener.url
        return url

    async def connect(self, address: str) -> Link:
        """Dial; over TLS, the certificate and the name in it are checked."""
        options: dict[str, Any] = {}
        if self._certificates:
            options["tls"] = self._transport.Tls.client(ca=self._certificates.authority)
        return _link(await self._transport.connect(address, **options))


def _link(connection: Any) -> Link:
    async def take() -> list[Any]:
        messages: list[Any] = await connection.recv_many(TAKEN_MAX)
        return messages

    stream = Stream(connection.send_many, take, _whole, _only)
    shared = connection.local_address.startswith("shm:")
    allocate = connection.allocate if shared else None
    return Link(connection.send, connection.recv, list, _same, stream, allocate)


def _same(message: Sequence[Buffer]) -> Sequence[Buffer]:
    return message


def _whole(frame: bytes) -> bytes:
    return frame


def _only(message: Sequence[bytes]) -> bytes:
    return message[0]


def make(
    scheme: str = "tcp", loop: str = "forebay", spin_us: int = 0, native: bool = False
) -> Side:
    """The side."""
    return Side(scheme, loop, spin_us=spin_us, native=native)
