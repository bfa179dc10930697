"""Who polls decides: a loop that has something to do does not let other threads of Python in.

Throughput beside a thread that computes depends on how fast the machine wakes that thread, and
belongs to the benchmarks. What decides it does not jitter: how often the loop lets go of the GIL,
which it does for a sleep alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from forebay.transport import AsyncConnection, EventLoop, connect, listen, new_event_loop
from tests.transport.loops import echo

CLIENTS, MESSAGES = 6, 500


async def ask(connection: AsyncConnection) -> None:
    """Get an answer to each message."""
    for number in range(MESSAGES):
        await connection.send(number.to_bytes(1000))
        assert int.from_bytes((await connection.recv())[0]) == number


def test_several_clients_are_served_without_letting_go_of_the_gil(tmp_path: Path) -> None:
    """A thread that computes costs the answers what it is given, not a switch for each of them."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EventLoop)
        async with listen(f"unix://{tmp_path}/a.sock", echo) as listener:
            connections = [await connect(listener.url) for _ in range(CLIENTS)]
            before = loop.forebay_selector.metrics()
            await asyncio.gather(*map(ask, connections))
            after = loop.forebay_selector.metrics()
            for connection in connections:
                await connection.aclose()
        counted = {name: after[name] - before[name] for name in after}
        assert counted["direct_calls"] >= CLIENTS * MESSAGES
        assert counted["sleeps"] * 100 <= CLIENTS * MESSAGES, counted

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
