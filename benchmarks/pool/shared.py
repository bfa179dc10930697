"""An acquire from the pool of another process, against one bare round trip to another process.

Ours acquires a service that is warm and gives it back: a question to the lender, which checks that
the service lives, its answer, and a release that is not answered.
Both are measured: `p50` and `p99` are of the acquire, `cycle_p50` has the release as well.
The peer is the least that any such pool could do in Python: a byte sent over a Unix socket to
another Python process that sends it back. With four clients it has four of those processes, so
that it never waits for a GIL or for its turn, where ours has one lender of one thread.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures, summary

US = 1000  # nanoseconds
MESSAGE = 64
Samples = tuple[list[int], list[int]]


def in_processes(clients: int, measure: Callable[[], Samples]) -> Samples:
    """Run `measure` in so many forked processes at once; all that they measured together.

    Each says that it is warm, and begins when all are.
    """
    children = []
    for _ in range(clients):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _report(theirs, measure)
        theirs.close()
        children.append((pid, ours))
    for _, connected in children:
        connected.recv(1)
    for _, connected in children:
        connected.send(b".")
    acquires: list[int] = []
    cycles: list[int] = []
    for pid, connected in children:
        with connected, connected.makefile("r") as stream:
            for samples, line in zip((acquires, cycles), stream, strict=True):
                samples += map(int, line.split())
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
            raise ValueError("a client failed; see above")
    return acquires, cycles


def _report(connected: socket.socket, measure: Callable[[], Samples]) -> None:
    """Measure in this child, tell, and leave."""
    code = 1
    try:
        measure()  # warm up
        connected.send(b".")
        connected.recv(1)
        lines = "".join(" ".join(map(str, samples)) + "\n" for samples in measure())
        connected.sendall(lines.encode())
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def forebay_acquires(acquires: int, clients: int) -> Figures:
    """Acquire from a lender, in so many processes, with a service for each of them."""
    import subprocess

    import forebay
    from benchmarks.services import Tally

    def measure() -> Samples:
        taken, cycles = [], []
        with forebay.SharedPool(path) as pool:
            with pool.acquire(Tally) as tally:
                if tally.add(1) != 2:
                    raise ValueError("the service answers wrongly: the figures would mean nothing")
            for _ in range(acquires):
                begun = time.perf_counter_ns()
                with pool.acquire(Tally):
                    lent = time.perf_counter_ns()
                cycles.append(time.perf_counter_ns() - begun)
                taken.append(lent - begun)
        return taken, cycles

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "pool.sock"
        serve = [sys.executable, "-m", "forebay.cli", "serve", "--path", str(path), "--json"]
        command = [*serve, "--max-size", str(clients)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as lender:
            assert lender.stdout is not None
            try:
                lender.stdout.readline()
                with forebay.SharedPool(path) as pool:
                    _warm(pool, clients)
                taken, cycles = in_processes(clients, measure)
            finally:
                lender.terminate()
    return summary(taken, unit_ns=US) | {"cycle_p50": summary(cycles, unit_ns=US)["p50"]}


def _warm(pool: object, services: int) -> None:
    """Start so many services, and leave them idle."""
    from benchmarks.services import Tally

    barrier = threading.Barrier(services)

    def hold() -> None:
        with pool.acquire(Tally):  # type: ignore[attr-defined]
            barrier.wait()

    threads = [threading.Thread(target=hold) for _ in range(services)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def socket_round_trips(acquires: int, clients: int) -> Figures:
    """A byte to another process and back, in so many processes, each with an echo of its own."""

    def measure() -> Samples:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _echo(theirs)
        theirs.close()
        trips = []
        with ours:
            for _ in range(acquires):
                begun = time.perf_counter_ns()
                ours.send(b".")
                ours.recv(MESSAGE)
                trips.append(time.perf_counter_ns() - begun)
        os.waitpid(pid, 0)
        return trips, trips

    trips, _ = in_processes(clients, measure)
    figures = summary(trips, unit_ns=US)
    return figures | {"cycle_p50": figures["p50"]}


def _echo(connected: socket.socket) -> None:
    while message := connected.recv(MESSAGE):
        connected.send(message)
    os._exit(0)


ACQUIRES, ACQUIRES_QUICK = 20_000, 5_000


def _acquires(name: str, function: str, clients: int) -> Contestant:
    options = {"acquires": ACQUIRES, "clients": clients}
    where = f"benchmarks.pool.shared:{function}"
    return Contestant(f"{name}, {clients}", where, OWN, options, {"acquires": ACQUIRES_QUICK})


def _claim(clients: int) -> Claim:
    return Claim(
        f"pool.shared.acquire{clients}.vs_socket_round_trip",
        _acquires("forebay, shared", "forebay_acquires", clients),
        _acquires("socket round trip", "socket_round_trips", clients),
        "p50",
        "us",
    )


CLAIMS = [_claim(1), _claim(4)]
