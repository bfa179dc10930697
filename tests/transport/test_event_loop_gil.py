"""A server whose process computes in another thread: who polls decides."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from typing import Any

import pytest

from forebay import transport
from forebay.transport import AsyncConnection

CLIENTS = 6
SECONDS = 0.5
ROUNDS = 3

SERVER = """
import asyncio, sys, threading
from forebay import transport

async def echo(connection):
    async for message in connection:
        await connection.send(message)

async def main():
    async with transport.listen("tcp://127.0.0.1:0", echo) as listener:
        print(listener.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)

def compute():
    while computing:
        pass

computing = True
thread = threading.Thread(target=compute)
thread.start()
stock, spin_us = sys.argv[1] == "stock", int(sys.argv[2])
factory = asyncio.SelectorEventLoop if stock else lambda: transport.new_event_loop(spin_us=spin_us)
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
computing = False
thread.join()
"""


async def count(url: str, clients: int) -> int:
    """Echoes of 1 kB that the clients get in a given time, one in flight each."""
    message = bytes(1000)
    answered = 0

    async def one(connection: AsyncConnection) -> None:
        nonlocal answered
        while True:
            await connection.send(message)
            await connection.recv()
            answered += 1

    connections = [await transport.connect(url) for _ in range(clients)]
    try:
        async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(one(connection))
    except TimeoutError:
        return answered
    finally:
        for connection in connections:
            connection.abort()
    raise AssertionError("the clients stopped before their time")


def served(kind: str, clients: int, spin_us: int = 0) -> int:
    """The echoes of a server process of this kind, with a thread that computes."""
    command = [sys.executable, "-c", SERVER, kind, str(spin_us)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        answered = asyncio.run(count(url, clients))
        process.stdin.close()
        assert process.wait(30) == 0
    return answered


def compared(clients: int, **ours: Any) -> tuple[float, str]:
    """Ours over asyncio's own, medians of interleaved rounds; and the figures as text."""
    figures: dict[str, list[int]] = {"ours": [], "stock": []}
    for _ in range(ROUNDS):
        figures["stock"].append(served("stock", clients))
        figures["ours"].append(served("ours", clients, **ours))
    ratio = statistics.median(figures["ours"]) / max(1, statistics.median(figures["stock"]))
    return ratio, json.dumps(figures)


@pytest.mark.timeout(120)
def test_several_clients_are_served_beside_a_thread_that_computes():
    """A busy thread in the server does not starve its clients of answers."""
    ratio, figures = compared(CLIENTS)
    assert ratio >= 2, figures
