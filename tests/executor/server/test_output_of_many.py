"""What many runs of one event loop write when they end at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import forebay
from tests.executor.serving import Serving, until

APP = """
import asyncio, os
import forebay

app = forebay.App("many")
running = []
gate = None

@app.request()
async def say(path: str) -> None:
    global gate
    if gate is None:
        gate = asyncio.Event()
    running.append(1)
    print("before", flush=True)
    if len(running) == 1:
        while not os.path.exists(path):
            await asyncio.sleep(0.005)
        gate.set()
    await gate.wait()
    print("after", flush=True)
"""

RUNS = 2_000


@pytest.mark.timeout(120)
def test_it_is_whole(tmp_path: Path) -> None:
    """It was lost where more than 64 records were on their way before the replies."""
    gate = tmp_path / "gate"
    with (
        Serving(tmp_path, APP) as serving,
        forebay.Client(f"unix://{serving.socket}", start=False) as client,
    ):
        requests = client.submit_many("say", ({"path": str(gate)} for _ in range(RUNS)))
        lanes = ("figures", "lanes", "async", "running")

        def running() -> int:
            found = client.ask("top")
            for name in lanes:
                found = found[name]
            return int(found)

        until(lambda: running() == RUNS)
        gate.touch()
        for request in requests:
            request.result(timeout=60)
        whole = ["".join(request.logs()) == "before\nafter\n" for request in requests]
        assert whole.count(False) == 0
