"""A program that borrows from a shared pool: `python shared_program.py SOCKET WAY ...`."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
from typing import Any

import forebay
from tests.pool.services import Echo, Notes, Owned, Sessions, Slow


def tell(what: Any) -> None:
    """Tell the test something as a line of JSON."""
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def use() -> None:
    """Use a service once and tell its process."""
    with pool.acquire(Echo) as echo:
        tell([echo.echo(os.getpid()), echo.lease.pid])


def note(text: str) -> None:
    """Leave a note in a service, and tell what was there before."""
    with pool.acquire(Notes) as notes:
        before = notes.read()
        notes.note(text)
        tell([before, notes.lease.pid])


def hold() -> None:
    """Hold a service until the test lets go on."""
    with pool.acquire(Echo) as echo:
        tell(echo.lease.pid)
        sys.stdin.readline()
    tell("released")
    sys.stdin.readline()


def branch(count: str) -> None:
    """Hold copies of a service until the test ends this."""
    with pool.acquire(Echo) as echo, echo.lease.fork(int(count)) as copies:
        tell([echo.lease.pid, *(copy.lease.pid for copy in copies)])
        sys.stdin.readline()


def share(count: str) -> None:
    """Hold leases of one service until the test ends this."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(pool.acquire(Sessions)) for _ in range(int(count))]
        tell([session.lease.pid for session in held])
        sys.stdin.readline()


def wait() -> None:
    """Ask for a service, and tell when it is lent."""
    tell("asking")
    with pool.acquire(Echo, timeout=None) as echo:
        tell(echo.lease.pid)
        sys.stdin.readline()


def start() -> None:
    """Be starting a service that takes its time."""
    threading.Thread(target=pool.acquire(Slow.spec(3600.0)).__enter__, daemon=True).start()
    while not any(one["state"] == "starting" for one in pool.services()):
        pass
    tell("starting")
    sys.stdin.readline()


def fork() -> None:
    """Hold a service, and have a child that Python knows nothing of."""
    with pool.acquire(Echo) as echo:
        child = ctypes.CDLL(None).fork()
        if child == 0:
            signal.pause()
        tell([child, echo.lease.pid])
        sys.stdin.readline()


def cycle(count: str) -> None:
    """Borrow, use and give back so many times; whoever enters must be the next to leave."""
    descriptors = 0
    for number in range(int(count)):
        with pool.acquire(Owned) as owned:
            token = f"{os.getpid()}-{number}"
            owned.enter(token)
            assert owned.leave(token) == token
        if number == 10:
            descriptors = len(os.listdir("/proc/self/fd"))
    tell(len(os.listdir("/proc/self/fd")) - descriptors)


if __name__ == "__main__":
    pool = forebay.SharedPool(sys.argv[1])
    globals()[sys.argv[2]](*sys.argv[3:])
