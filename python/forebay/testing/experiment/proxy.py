"""The fault of a faulty proxy: Unix sockets in front of others, which cut, hold and delay."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from forebay.testing._wire import Passage, Wire
from forebay.testing.experiment.injector import Injected
from forebay.testing.experiment.schedule import Planned

__all__ = ["FaultyProxy", "Proxies"]

READ_BYTES: Final = 64 << 10
CUT_BYTES: Final = 4096
PIECE_BYTES: Final = 1024
DELAY_S: Final = 0.005
JOIN_S: Final = 5.0
CONNECT_S: Final = 10.0
AGAIN_S: Final = 0.02

Way = Literal["pass", "cut", "hold", "delay"]
WAYS: Final[tuple[Way, ...]] = ("cut", "hold", "delay")


class Proxies:
    """Proxies in front of Unix sockets, on an event loop in a thread of their own.

    A proxy passes bytes and no descriptors; what is behind it may come later, and be another one
    for each connection.

    Args:
        behind: where each listens, and the path that it connects to.
    """

    def __init__(self, behind: Mapping[Path, Path]) -> None:
        self._behind = dict(behind)
        self._way: Way = "pass"
        self._turn = 0
        """How often the way has changed: wires are made anew then."""
        self._draw = random.Random(0)
        self._loop = asyncio.new_event_loop()
        self._begun = threading.Event()
        self._over = asyncio.Event()
        self._passes = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._listening = [_listening(path) for path in self._behind]
        self._thread = threading.Thread(target=self._run, name="forebay chaos proxy", daemon=True)
        self._thread.start()
        self._begun.wait()

    def turn(self, way: Way, seed: float = 0.0) -> None:
        """Treat all connections in this way from now on; any thread."""
        self._loop.call_soon_threadsafe(self._turned, way, seed)

    def close(self) -> None:
        """Cut all connections, and end the thread."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(JOIN_S)

    def _turned(self, way: Way, seed: float) -> None:
        self._way = way
        self._turn += 1
        self._draw = random.Random(seed)
        if way == "hold":
            self._passes.clear()
        else:
            self._passes.set()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._passes.set()
        accepting = [
            asyncio.create_task(self._accept(listening, target))
            for listening, target in zip(self._listening, self._behind.values(), strict=True)
        ]
        self._begun.set()
        await self._over.wait()
        for task in (*accepting, *self._links):
            task.cancel()
        await asyncio.gather(*accepting, *self._links, return_exceptions=True)
        for listening in self._listening:
            listening.close()

    async def _accept(self, listening: socket.socket, target: Path) -> None:
        loop = asyncio.get_running_loop()
        while True:
            here, _ = await loop.sock_accept(listening)
            here.setblocking(False)
            task = asyncio.create_task(self._link(here, target))
            self._links.add(task)
            task.add_done_callback(self._links.discard)

    async def _link(self, here: socket.socket, target: Path) -> None:
        """One connection, until either end has ended it or a wire has."""
        there = socket.socket(socket.AF_UNIX)
        there.setblocking(False)
        with here, there, contextlib.suppress(OSError):
            await self._passes.wait()
            await _connect(there, target)
            pumps = [
                asyncio.create_task(self._pump(here, there)),
                asyncio.create_task(self._pump(there, here)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        turn, passage = self._turn, Passage(self._wire())
        while received := await loop.sock_recv(source, READ_BYTES):
            await self._passes.wait()
            if turn != self._turn:
                turn, passage = self._turn, Passage(self._wire())
            for wait, piece in passage.steps(received):
                if wait:
                    await asyncio.sleep(wait)
                await loop.sock_sendall(sink, piece)
            if passage.over is not None:
                return

    def _wire(self) -> Wire:
        if self._way == "cut":
            return Wire(cut_at=self._draw.randrange(CUT_BYTES))
        if self._way == "delay":
            seed = self._draw.getrandbits(16)
            return Wire(piece_bytes=PIECE_BYTES, delay=DELAY_S, seed=seed)
        return Wire()


async def _connect(there: socket.socket, target: Path) -> None:
    """Connect, and wait for what is to listen there: it may be about to be started again."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CONNECT_S
    while True:
        try:
            return await loop.sock_connect(there, str(target))
        except (FileNotFoundError, ConnectionRefusedError):
            if loop.time() > deadline:
                raise
        await asyncio.sleep(AGAIN_S)


def _listening(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    listening.setblocking(False)
    return listening


class FaultyProxy:
    """Has the proxies cut, hold or delay every connection for a while.

    Args:
        proxies: those between clients and server, and between requests and services.
    """

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    def reason_not(self) -> str | None:
        """As of every injector."""
        return None

    def inject(self, planned: Planned) -> Injected | None:
        """Choose one of the ways."""
        way = WAYS[int(planned.choice * len(WAYS))]
        self._proxies.turn(way, planned.size)
        text = f"{way} for {planned.lasts:.1f} s"
        return Injected(text, lambda: self._proxies.turn("pass"))
