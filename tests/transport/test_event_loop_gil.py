"""Who polls decides: a loop that has something to do does not let other threads of Python in.

Throughput beside a thread that computes depends on how fast the machine wakes that thread, and
belongs to the benchmarks. What decides it does not jitter: how often the loop lets go of the GIL.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

# Nobody is forced to let go of the GIL; the other thread counts how often it was let in.
PROGRAM = """
import asyncio, sys, threading, time
from forebay import transport

CLIENTS, MESSAGES = 6, 500
entries = 0

def compete():
    global entries
    while competing:
        entries += 1
        time.sleep(0)

async def echo(connection):
    async for message in connection:
        await connection.send(message)

async def ask(connection):
    for number in range(MESSAGES):
        await connection.send(number.to_bytes(1000))
        assert int.from_bytes((await connection.recv())[0]) == number

async def main():
    async with transport.listen("unix://" + sys.argv[2], echo) as listener:
        connections = [await transport.connect(listener.url) for _ in range(CLIENTS)]
        for connection in connections:
            await connection.send(b"the first takes a turn of the handshake")
            await connection.recv()
        before = entries
        async with asyncio.TaskGroup() as group:
            for connection in connections:
                group.create_task(ask(connection))
        print(entries - before)
        for connection in connections:
            await connection.aclose()

sys.setswitchinterval(1000)
competing = True
thread = threading.Thread(target=compete)
thread.start()
factories = {"stock": asyncio.SelectorEventLoop, "ours": transport.new_event_loop}
with asyncio.Runner(loop_factory=factories[sys.argv[1]]) as runner:
    runner.run(main())
competing = False
thread.join()
"""


def entries(kind: str, path: str) -> int:
    """How often another thread was let in while 6 clients got 500 answers each."""
    command = [sys.executable, "-c", PROGRAM, kind, path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    return int(done.stdout)


@pytest.mark.timeout(120)
def test_several_clients_are_served_without_letting_go_of_the_gil(tmp_path_factory):
    """A thread that computes costs the answers what it is given, not a switch for each of them."""
    folder = tmp_path_factory.mktemp("gil")
    ours = entries("ours", str(folder / "ours"))
    stock = entries("stock", str(folder / "stock"))
    assert stock > 0, "the other thread never got the GIL, so that nothing was compared"
    assert ours * 10 <= stock, (ours, stock)
