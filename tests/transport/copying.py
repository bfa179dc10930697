"""Counts what sender and receiver of a message copy, in a process of its own.

It prints, for frames of each size, the bytes of calls of memcpy and memmove per message.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
from pathlib import Path

from forebay.memory import Arena
from forebay.transport import AsyncConnection, Tls, connect, listen, new_event_loop
from tests.transport.certificates import Authority

SIZES = (1_000, 60_000, 100_000, 1_000_000, 10_000_000)
"""Bytes of a frame, on both sides of the 64 KiB up to which a frame is copied."""
MESSAGES = 20


async def acknowledge(connection: AsyncConnection) -> None:
    """Answer each message with a byte."""
    async for _ in connection:
        await connection.send(b"x")


async def main(url: str, frames_are: str, folder: str) -> None:
    """Print the bytes copied per message, by the size of its frame."""
    counted: dict[int, float] = {}
    count = ctypes.CDLL(None).count_of_copied
    count.restype = ctypes.c_ulong
    server = client = None
    if url.startswith("tls:"):
        authority = Authority(Path(folder))
        signed = authority.sign("server")
        server = Tls.server(cert=signed.cert, key=signed.key)
        client = Tls.client(ca=authority.ca)
    async with (
        listen(url, acknowledge, tls=server) as listener,
        connect(listener.url, tls=client) as connection,
    ):
        with Arena(32 << 20) as arena:
            for size in SIZES:
                frame = bytes(size) if frames_are == "bytes" else arena.allocate(size)
                for _ in range(2):  # the first time makes room for frames of this size
                    before = count()
                    for _ in range(MESSAGES):
                        await connection.send(frame)
                        await connection.recv()
                    counted[size] = (count() - before) / MESSAGES
                del frame
    sys.stdout.write(json.dumps(counted))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
