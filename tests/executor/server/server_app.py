"""An application for tests of the server: what it did is written down in files."""

from __future__ import annotations

import os
import time

import forebay

app = forebay.App("tests")


@app.request(lane="short")
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@app.request()
def sleep(seconds: float = 1.0) -> int:
    """Sleep; which process did it."""
    time.sleep(seconds)
    return os.getpid()


@app.request()
def mark(path: str, seconds: float = 0.0, gate: str = "") -> int:
    """Note this run in a file, then sleep, and wait for a file if one is named."""
    _note(path)
    time.sleep(seconds)
    _wait_for(gate)
    return os.getpid()


@app.request(retries=2, backoff="10ms")
def persist(path: str, seconds: float = 0.0, gate: str = "") -> int:
    """The same, and it may run again."""
    _note(path)
    time.sleep(seconds)
    _wait_for(gate)
    return os.getpid()


@app.request()
def leave(code: int) -> None:
    """End the worker."""
    os._exit(code)


def _wait_for(gate: str) -> None:
    while gate and not os.path.exists(gate):
        time.sleep(0.01)


def _note(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, b"ran\n")
    os.close(descriptor)
