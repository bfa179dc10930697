"""The application of `benchmarks.executor.lanes`."""

from __future__ import annotations

import asyncio
import time

import forebay

app = forebay.App("lanes")


@app.request()
async def nap(seconds: float = 1.0) -> None:
    """Wait, as one of thousands in a process."""
    await asyncio.sleep(seconds)


@app.request(lane="long", memory="5MB")
def occupy(seconds: float = 60.0) -> None:
    """Hold a worker."""
    time.sleep(seconds)


@app.request(lane="short", memory="5MB")
def begun() -> float:
    """When it began, by the clock that all processes share."""
    return time.monotonic()
