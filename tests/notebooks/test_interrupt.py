"""The stop button: the waiting ends at once, and what was used stays usable."""

from __future__ import annotations

import asyncio
import textwrap
import time
from pathlib import Path

import pytest

from tests.notebooks.kernel import Cell, Kernel
from tests.notebooks.scenario import in_kernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

LONG_S = 30
"""What the cells wait for."""

STOPPED_S = 0.2
"""The longest time between the interrupt and the exception in the cell."""

ROUNDS = 2
"""A busy machine may delay one of them."""

BEGIN = """
import os, threading, time
import forebay

class Slow(forebay.Service):
    def sleep(self, seconds):
        time.sleep(seconds)
        return os.getpid()

class Starting(forebay.Service):
    def __init__(self, seconds):
        time.sleep(seconds)
    def ping(self):
        return "pong"

pool = forebay.ServicePool(max_size=2)

class Stopwatch:
    def __enter__(self):
        print("begun", flush=True)
    def __exit__(self, kind, error, trace):
        print("stopped", time.time(), flush=True)
"""

WAITS = {
    "a call": """
        with pool.acquire(Slow, by_value=True) as slow, Stopwatch():
            slow.sleep(30)
        """,
    "a full pool": """
        with pool.acquire(Slow, by_value=True), pool.acquire(Slow, by_value=True), Stopwatch():
            with pool.acquire(Slow, by_value=True):
                pass
        """,
    "a start": """
        with Stopwatch():
            with pool.acquire(Starting.spec(30), by_value=True):
                pass
        """,
    "an executor": """
        with forebay.Executor(1, by_value=True) as executor, Stopwatch():
            executor.submit(time.sleep, 30).result()
        """,
    "an awaited call": """
        with Stopwatch():
            async with pool.acquire(Slow, by_value=True) as slow:
                await slow.sleep(30)
        """,
    "an awaited sleep": """
        import asyncio
        async with pool.acquire(Slow, by_value=True):
            with Stopwatch():
                await asyncio.sleep(30)
        """,
}

WORKS = """
with pool.acquire(Slow, by_value=True) as slow:
    print(slow.sleep(0) > 0)
"""


async def interrupted(kernel: Kernel, source: str, after: float = 0.3) -> tuple[Cell, float]:
    """A cell that is interrupted while it waits, and how long it took to stop."""
    async with kernel.running(textwrap.dedent(source), until="begun") as cell:
        await asyncio.sleep(after)  # nothing reports that it waits by now
        pressed = time.time()
        await kernel.interrupt()
    ended = await cell
    # A cell that awaits is a task of the kernel's loop, and an interrupt cancels it.
    name = "CancelledError" if "await " in source else "KeyboardInterrupt"
    assert ended.error.startswith(name), ended.traceback
    return ended, float(ended.text.split()[-1]) - pressed


@pytest.mark.parametrize("waits", WAITS)
def test_an_interrupt_stops_the_waiting_and_the_pool_stays_usable(
    waits: str, tmp_path: Path
) -> None:
    """In a call, in the queue, in a start, in an executor, in an await; twice in a row."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(BEGIN)
        took = [(await interrupted(kernel, WAITS[waits]))[1] for _ in range(ROUNDS)]
        assert min(took) < STOPPED_S, took
        assert (await kernel.expect(WORKS)).text == "True\n"

    in_kernel(tmp_path, cells)


APP = """%%writefile pause.py
import time
import forebay

app = forebay.App("pause")

@app.request()
def pause(seconds: float) -> str:
    print("begun", flush=True)
    time.sleep(seconds)
    return "over"
"""

REQUESTS = {
    "result": "request.result()",
    "run": "client.run(pause.pause, 30.0)",
    "watch": "request.watch()",
    "awaited": "await (await later.get(request.id)).watch()",
    "awaited result": "await (await later.get(request.id)).result()",
    "logs": "list(request.logs())",
    "events": "list(request.events())",
    "follow": "list(client.follow())",
}


@pytest.mark.parametrize("waits", REQUESTS)
def test_an_interrupted_request_goes_on_and_the_cell_says_how(waits: str, tmp_path: Path) -> None:
    """As on the command line; and the client is used as before."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(APP)
        await kernel.expect(BEGIN)
        await kernel.expect("import pause\nclient = forebay.Client(app='pause.py')")
        await kernel.expect("later = forebay.AsyncClient(app='pause.py')")
        await kernel.expect("request = client.submit(pause.pause, 30.0); print(request.id)")
        try:
            took = []
            for _ in range(ROUNDS):
                cell = f"with Stopwatch():\n    {REQUESTS[waits]}"
                stopped, seconds = await interrupted(kernel, cell)
                took.append(seconds)
                if waits in ("result", "run", "watch", "awaited"):
                    assert "goes on; to wait again: client.get('" in stopped.traceback
                    assert ".cancel()" in stopped.traceback
            assert min(took) < STOPPED_S, took
            running = await kernel.expect("print(len(client.list(status='running')) > 0)")
            assert running.text == "True\n"
            await kernel.expect("request.cancel(); request.exception()")
            assert (await kernel.expect("print(client.run(pause.pause, 0.0))")).text == "over\n"
        finally:
            await kernel.run("await later.aclose()")
            await kernel.run("client.stop(0); client.wait_gone(10); client.close()")

    in_kernel(tmp_path, cells)


def test_a_second_interrupt_on_the_heels_of_the_first_corrupts_nothing(tmp_path: Path) -> None:
    """An impatient user presses again while the first one is still handled."""

    async def cells(kernel: Kernel) -> None:
        await kernel.expect(BEGIN)
        for pause_s in (0.0, 0.001, 0.005):
            began = time.monotonic()
            async with kernel.running(textwrap.dedent(WAITS["a call"]), until="begun") as cell:
                await kernel.interrupt()
                await asyncio.sleep(pause_s)
                await kernel.interrupt()
            # The second one may come while IPython shows the first, or after the end of the cell.
            await cell
            assert time.monotonic() - began < LONG_S
            worked = await kernel.run(WORKS)
            if "KeyboardInterrupt" in worked.error + worked.stderr:
                worked = await kernel.expect(WORKS)
            assert worked.text == "True\n"
            states = await kernel.expect("print([one['state'] for one in pool.services()])")
            assert states.text == "['idle']\n"

    in_kernel(tmp_path, cells)
