"""An application whose requests are generators, which wait for files so that tests set the pace."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import forebay

app = forebay.App("items")


def passed(gate: str, number: int) -> bool:
    """Whether a gate is open for this item: its file is there."""
    return Path(f"{gate}.{number}").exists()


def note(path: str, error: BaseException) -> None:
    """Leave a file that says how a generator ended."""
    Path(path).write_text(type(error).__name__)


@app.request()
def count(until: int) -> Iterator[int]:
    """Count without a pause."""
    yield from range(until)


@app.request()
def gated(gate: str, until: int) -> Generator[dict[str, int], None, str]:
    """Yield each item once its gate is open."""
    for number in range(1, until + 1):
        while not passed(gate, number):
            time.sleep(0.005)
        yield {"number": number, "pid": os.getpid()}
    return "returned"


@app.request(retries=3, backoff=0)
def again(gate: str, until: int) -> Iterator[dict[str, int]]:
    """The same, and it may run again."""
    yield from gated.definition.function(gate, until)


@app.request()
async def gated_async(gate: str, until: int) -> AsyncIterator[int]:
    """The same on a loop; a file says how it ended."""
    try:
        for number in range(1, until + 1):
            while not passed(gate, number):  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(0.005)
            yield number
    except BaseException as error:
        note(f"{gate}.ended", error)
        raise


@app.request()
async def count_async(until: int) -> AsyncIterator[int]:
    """Count on a loop, without ever waiting."""
    for number in range(until):
        yield number


@app.request()
async def ping() -> str:
    """What shares the loop with the others."""
    return "pong"


@app.request()
def arrays(sizes: list[int]) -> Iterator[np.ndarray[Any, Any]]:
    """Arrays of these lengths."""
    for size in sizes:
        yield np.arange(size, dtype=np.float64)


@app.request()
def sized(sizes: list[int]) -> Iterator[bytes]:
    """Bytes of these lengths."""
    for size in sizes:
        yield bytes(size)


@app.request()
def closed(path: str, until: int) -> Iterator[Any]:
    """Yield what is no data; a file says how the generator ended."""
    try:
        yield from range(until)
        yield object()
    except BaseException as error:
        note(path, error)
        raise


@app.request()
def stubborn() -> Iterator[Any]:
    """Yield what is no data, and do not end when told to."""
    try:
        yield object()
    except GeneratorExit:
        yield 1


@app.request()
def raises(until: int) -> Iterator[int]:
    """Fail after some items."""
    yield from range(until)
    raise ValueError("no more of them")


@app.request()
def sleeps(path: str) -> Iterator[int]:
    """Wait within the generator; a file says how it ended."""
    try:
        yield 1
        time.sleep(60)
    finally:
        Path(path).touch()


@app.request()
def forks() -> Iterator[int]:
    """Go on in two processes, of which one is no worker."""
    yield 1
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        yield 2
    else:
        yield 3


@app.request()
def undecided(until: int) -> Iterator[str]:
    """Yield what the annotation does not say."""
    yield from range(until)  # type: ignore[misc]


@app.request(lane="short")
def plain() -> int:
    """No generator."""
    return 7


def kill(pid: int) -> None:
    """For the tests: end a worker as the kernel does."""
    os.kill(pid, signal.SIGKILL)
