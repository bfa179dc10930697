"""Requests for tests of what fails on a cluster."""

from __future__ import annotations

import os
import sys
import time

import forebay

app = forebay.App("failures")


@app.request(memory="10MB")
def where() -> list[str | int]:
    """The node and the process of the worker."""
    return [os.environ["FOREBAY_TEST_NODE"], os.getpid()]


@app.request(memory="10MB")
def stay(path: str, seconds: float = 60.0) -> str:
    """Write the number of the process, and stay."""
    sys.stdout.write("here\n")
    sys.stdout.flush()
    with open(f"{path}.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{path}.new", path)
    time.sleep(seconds)
    return path


@app.request(memory="10MB", lane="short")
def add(a: int) -> int:
    """Something short."""
    return a + 1
