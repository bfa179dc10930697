"""Signals wake the loop of a notebook, and leave what somebody else has asked for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from forebay import _notebook
from forebay._notebook import wake_on_interrupt

LONG_S = 20.0
SIGNAL_AFTER_S = 0.2


@pytest.fixture(autouse=True)
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This program is a kernel."""
    monkeypatch.setattr(_notebook, "is_notebook", lambda: True)
    yield
    _notebook._stop_waking()


async def handled() -> None:
    """Wait for a signal whose handler gives the loop a callback, as that of ipykernel does."""
    loop = asyncio.get_running_loop()
    wake_on_interrupt(loop)
    told = asyncio.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon(told.set))
    timer = threading.Timer(SIGNAL_AFTER_S, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        async with asyncio.timeout(LONG_S):
            await told.wait()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_wakes_the_loop_that_runs() -> None:
    """One loop after the other."""
    for _ in range(2):
        asyncio.run(handled())


def test_the_descriptor_of_somebody_else_stays() -> None:
    """A loop with signal handlers has one, for example."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        signal.set_wakeup_fd(theirs.fileno())
        try:

            async def ask() -> None:
                wake_on_interrupt(asyncio.get_running_loop())

            asyncio.run(ask())
        finally:
            kept = signal.set_wakeup_fd(-1)
        assert kept == theirs.fileno()
