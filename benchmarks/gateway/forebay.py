"""Our server with its gateway on loopback: SQLite on the disk, workers that run the no-ops."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.executor.program import folder_on_disk, running
from benchmarks.gateway.address import Address, free_port

TARGET = "benchmarks.executor.application:app"
QUEUED_MAX = 10_000_000
"""More than any load submits: what is measured is the gateway, not how it refuses."""


@contextmanager
def served(workers: int, **settings: str) -> Iterator[Address]:
    """A server and its gateway, in processes of their own, for the length of a round.

    Args:
        workers: of the short lane, which stay.
        settings: further ones of the executor, in capitals.
    """
    with folder_on_disk() as folder:
        os.environ |= {
            "FOREBAY_STATE_DIR": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "FOREBAY_EXECUTOR_MAX_WORKERS": str(workers),
            "FOREBAY_EXECUTOR_SHORT_WORKERS": str(workers),
            "FOREBAY_EXECUTOR_LONG_WORKERS": "0",
            "FOREBAY_EXECUTOR_MAX_QUEUED": str(QUEUED_MAX),
            "FOREBAY_EXECUTOR_MAX_QUEUE_BYTES": "1GiB",
        }
        os.environ |= {f"FOREBAY_EXECUTOR_{name}": value for name, value in settings.items()}
        plain = Address(free_port())
        serve = ("-m", "forebay.cli", "serve", TARGET, "--quiet", "--http", plain.text)
        command = (sys.executable, *serve)
        with running(command, ready=lambda: plain.answers("/readyz")):
            yield Address(plain.port, {"Authorization": f"Bearer {_token(folder)}"})


def _token(folder: Path) -> str:
    """The token that the server made for commands of this user; its address is behind it."""
    (file,) = folder.rglob("local.token")
    return file.read_text().split()[0]


def gateway_of(port: int) -> int:
    """The gateway's process: below this one, and named as its module."""
    from benchmarks import processes

    for pid in processes.descendants(os.getpid()):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(b"forebay.gateway" in word for word in command):
            return pid
    raise ValueError(f"no process of {port} is a gateway")
