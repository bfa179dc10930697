"""A program: many connections to one listener, which all write, or none of which reads at first.

    python -m tests.transport.many_peers write URL CONNECTIONS MESSAGES BYTES
    python -m tests.transport.many_peers read URL CONNECTIONS MESSAGES BYTES

A writer sends its messages and waits for one in return. A reader reads once a line comes in on
stdin. At the end it says how many bytes of messages it got.
"""

from __future__ import annotations

import asyncio
import sys

from forebay.transport import AsyncConnection, connect, set_process_limits


async def write(connection: AsyncConnection, messages: int, size: int) -> int:
    for number in range(messages):
        await connection.send(bytes([number % 256]) * size)
    (counted,) = await connection.recv()
    return int(counted)


async def read(connection: AsyncConnection, messages: int, size: int) -> int:
    got = 0
    for number in range(messages):
        (frame,) = await connection.recv()
        if bytes(frame) != bytes([number % 256]) * size:
            raise ValueError(f"message {number} is another one")
        got += len(frame)
    await connection.send(str(got).encode())
    return got


async def main(what: str, url: str, connections: int, messages: int, size: int) -> int:
    if what == "read":
        set_process_limits(max_bytes=1)  # so that next to nothing is read ahead
    opened = [await connect(url) for _ in range(connections)]
    sys.stdout.write("connected\n")
    sys.stdout.flush()
    if what == "read":
        await asyncio.to_thread(sys.stdin.readline)
    does = {"write": write, "read": read}[what]
    got = await asyncio.gather(*(does(one, messages, size) for one in opened))
    for one in opened:
        await one.aclose()
    return sum(got)


if __name__ == "__main__":
    numbers = map(int, sys.argv[3:])
    sys.stdout.write(f"{asyncio.run(main(*sys.argv[1:3], *numbers))}\n")
