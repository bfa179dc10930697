"""An application whose requests leave results of each kind, and logs."""

from __future__ import annotations

import hashlib
import os
import time

import forebay

app = forebay.App("kept")


@app.request(lane="short", retries=3)
def echo(text: str) -> str:
    """Say it in the log too."""
    print("heard", text)
    return text


@app.request(retries=3)
def large(letter: str, size: int) -> bytes:
    """A result that becomes a file."""
    return letter.encode() * size


@app.request()
def opened(gate: str, size: int) -> bytes:
    """A result that becomes a file, once the gate is there."""
    if not os.path.exists(gate):
        print("run 1")
        raise RuntimeError("it is closed")
    print("run 2")
    return b"x" * size


@app.request(retries=3)
def again(gate: str) -> str:
    """It may run again after a crash."""
    _wait_for(gate)
    return "again"


@app.request()
def once(gate: str) -> str:
    """It may not."""
    _wait_for(gate)
    return "once"


@app.request(retries=3)
def login(password: forebay.Secret[str]) -> str:
    """Show that the secret has come, without showing it."""
    return hashlib.sha256(password.encode()).hexdigest()


@app.request(retention="0s")
def brief() -> int:
    """It goes once it has ended."""
    return 1


@app.request(retention="30d")
def long_kept() -> int:
    """It stays for longer than others."""
    return 2


def _wait_for(gate: str) -> None:
    while not os.path.exists(gate):
        time.sleep(0.01)
