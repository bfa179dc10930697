"""Two sockets joined by wires, on the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

from forebay.testing._wire import Passage, Wire
from forebay.transport._internal import parse, tune

PREFACE_BYTES = 32
READ_BYTES = 64 << 10
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: the close sends a reset."""


class Link:
    """Two sockets, and the two wires between them, until both directions have ended.

    It owns the sockets. Nothing fails before both prefaces have passed, and before `armed` is set.
    """

    def __init__(self, here: socket.socket, there: socket.socket, onward: Wire, back: Wire) -> None:
        self.armed = asyncio.Event()
        self._met = asyncio.Barrier(2)
        self._sockets = (here, there)
        self._wires = (onward, back)
        self._held = asyncio.Event()
        """Never set: what hangs waits for it."""

    async def run(self) -> None:
        """Pass bytes until both directions have ended, or one of them has ended both."""
        here, there = self._sockets
        onward, back = self._wires
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(here, there, onward))
                pumps.create_task(self._pump(there, here, back))
        except* (OSError, _Over):
            pass  # whatever ended one end, ends the other now
        finally:
            here.close()
            there.close()

    async def _pump(self, source: socket.socket, sink: socket.socket, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        rest = await self._preface(source, sink)
        if wire.end() is not None:
            await self.armed.wait()
        passage = Passage(wire)
        while True:
            for wait, piece in passage.steps(rest):
                if wait:
                    await asyncio.sleep(wait)
                await loop.sock_sendall(sink, piece)
            if passage.over is not None:
                await self._fail(passage.over, source, sink)
                return
            rest = await loop.sock_recv(source, READ_BYTES)
            if not rest:
                _finish(sink)
                return

    async def _preface(self, source: socket.socket, sink: socket.socket) -> bytes:
        """Pass the handshake as it is; returns the bytes after it."""
        loop = asyncio.get_running_loop()
        got = b""
        while len(got) < PREFACE_BYTES:
            more = await loop.sock_recv(source, READ_BYTES)
            if not more:
                raise _Over
            got += more
        await loop.sock_sendall(sink, got[:PREFACE_BYTES])
        await self._met.wait()
        return got[PREFACE_BYTES:]

    async def _fail(self, how: str, source: socket.socket, sink: socket.socket) -> None:
        if how == "hold":
            await self._held.wait()
        if how == "truncate":
            _finish(sink)
            while await asyncio.get_running_loop().sock_recv(source, READ_BYTES):
                pass  # later bytes vanish
            return
        if how == "reset":
            for end in (source, sink):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        raise _Over


class _Over(Exception):
    """Both directions have ended."""


def _finish(sink: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was faster
        sink.shutdown(socket.SHUT_WR)


async def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected, nonblocking sockets of TCP, which can be reset; a socketpair cannot."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
        listening.setblocking(False)
        one = socket.socket()
        one.setblocking(False)
        try:
            await loop.sock_connect(one, listening.getsockname())
            other, _ = await loop.sock_accept(listening)
        except BaseException:
            one.close()
            raise
    tune(one)
    tune(other)
    return one, other


class Relay:
    """A relay in front of a listener.

    Attributes:
        url: what to connect to in its place.
    """

    def __init__(self, url: str) -> None:
        self.url = url


@contextlib.asynccontextmanager
async def relay(
    url: str, *, there: Wire | None = None, back: Wire | None = None
) -> AsyncIterator[Relay]:
    """A TCP address in front of a listener, over wires that fail.

    Args:
        url: of the listener, `tcp://` or `unix://`.
        there: what clients send passes over it.
        back: what the listener sends.

    Each connection counts its bytes from its own handshake. A token is part of the first bytes.
    `connect` may raise for a failure at the first few bytes already.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    host, port = listening.getsockname()
    links: set[asyncio.Task[None]] = set()
    accepting = asyncio.create_task(_accept(listening, url, there or Wire(), back or Wire(), links))
    try:
        yield Relay(f"tcp://{host}:{port}")
    finally:
        listening.close()
        for task in (accepting, *links):
            task.cancel()
        await asyncio.gather(accepting, *links, return_exceptions=True)


async def _accept(
    listening: socket.socket,
    url: str,
    there: Wire,
    back: Wire,
    links: set[asyncio.Task[None]],
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        accepted, _ = await loop.sock_accept(listening)
        tune(accepted)
        try:
            onward = await _dial(url)
        except OSError:
            accepted.close()  # as if no server listened
            continue
        link = Link(accepted, onward, there, back)
        link.armed.set()
        task = asyncio.create_task(link.run())
        links.add(task)
        task.add_done_callback(links.discard)


async def _dial(url: str) -> socket.socket:
    address = parse(url)
    family = socket.AF_UNIX if address.scheme == "unix" else socket.AF_INET
    where = address.path if address.scheme == "unix" else (address.host, address.port)
    dialled = socket.socket(family)
    dialled.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(dialled, where)
    except BaseException:
        dialled.close()
        raise
    tune(dialled)
    return dialled
