"""A program that uses a pool and ends in some way: `python client.py WAY`.

It leases three services, one that ignores SIGTERM and one that is stopped, has each start a
program, tells all their process ids as one line of JSON, and then ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from typing import Any

import forebay
from tests.pool.processes import parent, template_of
from tests.pool.services import Echo, Slow


def told(**more: Any) -> None:
    """Tell the test who is there."""
    pids = [service.lease.pid for service in services]
    known = {
        "keeper": parent(pids[0]),
        "template": template_of(pids[0]),
        "services": pids,
        "grandchildren": grandchildren,
        "files": files,
        **more,
    }
    print(json.dumps(known), flush=True)
    sys.stdin.readline()  # the test has looked


def wait_for_the_end() -> None:
    """Wait until the test kills this process."""
    told()
    while True:
        signal.pause()


def leave() -> None:
    """End as programs do, leases still out."""
    told()


def fail() -> None:
    """End by an exception that nobody catches."""
    told()
    raise LookupError("nobody catches this")


def exit_in_thread() -> None:
    """Have a thread call sys.exit, which ends the thread alone."""
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()
    told()


def exit_in_main() -> None:
    """End with an exit code."""
    told()
    sys.exit(3)


def call() -> None:
    """Be in a call when the end comes."""
    told()
    services[2].hang()


def acquire() -> None:
    """Be waiting for a service when the end comes."""
    told()
    with pool.acquire(Echo, timeout=None):
        pass


def start() -> None:
    """Be starting a service when the end comes."""
    other = forebay.ServicePool(max_size=1)
    told()
    with other.acquire(Slow.spec(3600.0), timeout=None):
        pass


def fork() -> None:
    """Have a child that inherits every descriptor and outlives this process."""
    child = os.fork()
    if child == 0:
        os.close(1)
        while True:
            signal.pause()
    told(child=child)
    signal.pause()


def multiprocessing_fork() -> None:
    """The same by multiprocessing, as a data loader would have it."""
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    told(child=child.pid)
    signal.pause()


if __name__ == "__main__":
    # What a shell starts in the background ignores it, and so would we.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pool = forebay.ServicePool(max_size=3, name="client")
    services = [pool.acquire(Echo.spec(base=base)).__enter__() for base in range(3)]
    services[0].ignore_termination()
    grandchildren = [service.spawn() for service in services]
    files = [service.temporary_file() for service in services]
    os.kill(services[1].lease.pid, signal.SIGSTOP)
    globals()[sys.argv[1]]()
