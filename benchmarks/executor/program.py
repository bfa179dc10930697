"""A program that a contestant of the executor starts for the length of its round."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_S = 60.0
END_S = 10.0
POLL_S = 0.01
ON_DISK = "/var/tmp"
"""Where what is to survive lies: /tmp may be memory, on which an fsync costs nothing."""


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    ready: Callable[[], bool] | None = None,
    user: str | int | None = None,
) -> Iterator[None]:
    """Run a program until the block ends; what it prints goes where ours goes.

    Args:
        command: the program and its arguments.
        ready: asked until it says yes, before the block begins.
        user: who it runs as, where not as we do.

    Raises:
        RuntimeError: it ended, or was not ready in time.
    """
    with subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        user=user,
        extra_groups=None if user is None else [],
    ) as process:
        try:
            deadline = time.monotonic() + READY_S
            while ready is not None and not ready():
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with status {process.returncode}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} was not ready after {READY_S:.0f} s")
                time.sleep(POLL_S)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A folder on the disk for the length of a round, the same disk for everyone."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-", dir=ON_DISK) as name:
        yield Path(name)
