"""Reads that wait: of a pipe, until somebody writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 10.0
PAUSES_S = (0.01, 0.05, 0.2, 1.0)
"""How long to wait, each time anew, until a read is in flight: before, it is cancelled at once."""


def feed(path: Path, data: bytes) -> None:
    """Write to the pipe, which somebody has open for reading."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def until(condition: Callable[[], object]) -> None:
    """Wait for something that another thread or the kernel does."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.001)
