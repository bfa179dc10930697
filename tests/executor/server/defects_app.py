"""An application for tests of what went wrong elsewhere."""

from __future__ import annotations

import asyncio
import os
import time

import forebay

app = forebay.App("defects")

with open(os.path.join(os.path.dirname(__file__), "imports"), "a") as imports:
    imports.write(f"{os.getpid()}\n")


@app.request(lane="short")
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@app.request(lane="short")
def mark(path: str) -> None:
    """Note a run."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b"ran\n")
    os.close(descriptor)


@app.request(lane="short")
def variable(name: str) -> str | None:
    """What a variable of the environment is for a request."""
    return os.environ.get(name)


@app.request()
async def nap(path: str) -> None:
    """Sleep, with thousands of others, until a file is there."""
    while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240 - nobody here can set an event
        await asyncio.sleep(0.02)


@app.request()
async def block(path: str) -> None:
    """Hold up the whole loop, as no async function should, until a file is there."""
    while not os.path.exists(path):  # noqa: ASYNC240 - what no async function should do
        time.sleep(0.01)  # noqa: ASYNC251 - neither


@app.request()
def talk(path: str) -> None:
    """Write a line now and then until a file is there."""
    while not os.path.exists(path):
        os.write(1, b"still here\n")
        time.sleep(0.02)
