"""An ASGI application on uvicorn, one process on httptools and uvloop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.executor.program import running
from benchmarks.gateway.address import HOST, Address, free_port


@contextmanager
def served(application: str) -> Iterator[Address]:
    """It runs until the block ends; a GET of `/ready` says that it answers."""
    address = Address(free_port())
    command = (
        *(sys.executable, "-m", "uvicorn", application, "--host", HOST),
        *("--port", str(address.port), "--http", "httptools", "--loop", "uvloop"),
        *("--no-access-log", "--log-level", "warning"),
    )
    with running(command, ready=lambda: address.answers("/ready")):
        yield address
