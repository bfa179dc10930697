"""An application whose results are large, and whose code is at the files that they become."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from typing import Any

import numpy as np

import forebay

app = forebay.App("large")


@app.request()
def numbers(count: int) -> Any:
    """Count in eight bytes each."""
    return np.arange(count, dtype=np.float64)


@app.request()
async def later(count: int) -> Any:
    """The same on a loop."""
    return np.arange(count, dtype=np.float64)


@app.request()
def mixed(count: int) -> Any:
    """Arrays of several kinds among other data."""
    return {
        "name": "mixed",
        "wide": np.arange(count, dtype=np.complex128),
        "odd": [np.arange(count + 1, dtype=np.uint8), np.ones((3, count), dtype="<i2")],
        "small": np.arange(3),
        "text": "x" * 1000,
    }


@app.request()
def text(size: int) -> str:
    """No array at all."""
    return "x" * size


@app.request()
def die(count: int, pid: int = 0) -> Any:
    """End a process, by default its own, when its result is written and nobody was told."""
    written(lambda path: os.kill(pid or os.getpid(), signal.SIGKILL))
    return np.zeros(count)


@app.request()
def plant(count: int, kind: str, victim: str) -> Any:
    """Put something else where its result was written."""

    def change(path: str) -> None:
        os.unlink(path)
        if kind == "link":
            os.symlink(victim, path)
        elif kind == "name":
            os.link(victim, path)
        elif kind == "directory":
            os.mkdir(path)
        elif kind == "length":
            with open(path, "wb") as file:
                file.write(b"x")

    written(change)
    return np.zeros(count)


@app.request()
def limited(count: int, file_bytes: int) -> Any:
    """Have the kernel refuse longer files, as a full disk does."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
    return np.zeros(count)


def written(act: Callable[[str], None]) -> None:
    """Have something done with the result's file, once it is whole."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        os.fsync = real
        real(descriptor)
        act(os.readlink(f"/proc/self/fd/{descriptor}"))

    os.fsync = fsync  # type: ignore[assignment]
