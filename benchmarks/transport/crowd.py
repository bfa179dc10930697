"""Ten thousand connections at once on one server: `python -m benchmarks.transport.crowd`.

Printed: how fast they were accepted, handshakes included, memory of an idle one at the server, the
time to send 100 bytes to all of them, and what a peer that does not read holds of the server's
memory while the others are served: the high-water mark at most, and the message that crossed it.
Exit status 1 where a bound is broken; the figures count on a quiet machine.
Clients run in processes of their own, `CLIENTS` of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.bounds import Bound, broken, table
from benchmarks.machine import raise_open_files
from forebay._core import OUTBOX_BYTES_HIGH
from forebay.errors import BrokenError, ClosedError
from forebay.transport import AsyncConnection, connect, listen

CLIENTS = 2
DIALLED_AT_ONCE = 100
BROADCASTS = 5
MESSAGE = bytes(100)
STALLED_MESSAGE = bytes(50_000)
STALL_S = 1.0
CONNECT_TIMEOUT_S = 120.0
ALL = 10_000
# Half of what two quiet cores gave, as the claims have it.
ACCEPTED_MIN, IDLE_BYTES_MAX, BROADCAST_MS_MAX = 4_000.0, 8_192, 200.0
HEAD_BYTES_MAX = 64


def resident() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Crowd:
    """The server's side."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._there: list[AsyncConnection] = []
        self._first = 0.0
        self._full = asyncio.Event()

    async def handle(self, connection: AsyncConnection) -> None:
        """Keep a connection until its peer leaves."""
        if not self._there:
            self._first = time.perf_counter()
        self._there.append(connection)
        if len(self._there) == self._count:
            self._full.set()
        async for _ in connection:
            pass

    async def gather(self) -> tuple[float, float]:
        """Until all are there: connections a second, and bytes for each."""
        before = resident()
        await self._full.wait()
        took = time.perf_counter() - self._first
        return self._count / took, (resident() - before) / self._count

    async def broadcast(self) -> float:
        """Milliseconds to send a message to all."""
        started = time.perf_counter()
        for connection in self._there:
            await connection.send(MESSAGE)
        return (time.perf_counter() - started) * 1e3

    async def stall(self) -> tuple[int, int]:
        """Send to one that does not read, and to the others: bytes held, others served."""
        stalled, others = self._there[0], self._there[1:]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STALL_S):
                while True:
                    await stalled.send(STALLED_MESSAGE)
        for connection in others:
            await connection.send(MESSAGE)
        return stalled.metrics()["outbox_bytes"], len(others)


async def serve(count: int) -> list[Bound]:
    """Run the clients against a listener of this process; what was found."""
    crowd = Crowd(count)
    async with listen("tcp://127.0.0.1:0", crowd.handle, handshake_timeout=60.0) as listener:
        command = [sys.executable, "-m", "benchmarks.transport.crowd", "--client", listener.url]
        shares = [count // CLIENTS + (place < count % CLIENTS) for place in range(CLIENTS)]
        clients = [
            await asyncio.create_subprocess_exec(*command, "--connections", str(each))
            for each in shares
        ]
        try:
            rate, bytes_each = await crowd.gather()
            broadcasts = [await crowd.broadcast() for _ in range(BROADCASTS)]
            held, served = await crowd.stall()
        finally:
            for client in clients:
                client.kill()
                await client.wait()
    to_all = statistics.median(broadcasts) * ALL / count
    held_max = OUTBOX_BYTES_HIGH + len(STALLED_MESSAGE) + HEAD_BYTES_MAX
    return [
        Bound("connections open at once", *(served + 1, count, ""), at_least=True),
        Bound("accepted a second, with handshake", *(rate, ACCEPTED_MIN, "1/s"), at_least=True),
        Bound("memory of an idle one", bytes_each, IDLE_BYTES_MAX, "bytes"),
        Bound(f"100 bytes to {ALL:,} of them", to_all, BROADCAST_MS_MAX, "ms"),
        Bound("held for one that does not read", held, held_max, "bytes"),
    ]


async def be_client(url: str, count: int) -> None:
    """Open connections, and read all of them but the first."""
    slots = asyncio.Semaphore(DIALLED_AT_ONCE)

    async def dial() -> AsyncConnection:
        async with slots:
            return await connect(url, timeout=CONNECT_TIMEOUT_S)

    async def read(connection: AsyncConnection) -> None:
        with contextlib.suppress(BrokenError, ClosedError):
            async for _ in connection:
                pass
        connection.abort()

    first = await dial()
    connections = await asyncio.gather(*(dial() for _ in range(count - 1)))
    await asyncio.gather(*map(read, connections))
    first.abort()


def main() -> int:
    """Be the server, or one of its clients."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transport.crowd", description=__doc__
    )
    parser.add_argument("--connections", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--json", metavar="FILE", help="write the bounds there as well")
    parser.add_argument("--client", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    raise_open_files()
    if options.client:
        asyncio.run(be_client(options.client, options.connections))
        return 0
    bounds = asyncio.run(serve(options.connections))
    print(table(bounds))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(bound) for bound in bounds], indent=1))
    return broken(bounds)


if __name__ == "__main__":
    sys.exit(main())
