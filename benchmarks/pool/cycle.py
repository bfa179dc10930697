"""One piece of work in a service: from a warm one that is given back, against one of its own.

Ours acquires, calls once and releases, round after round with one service, so that what a reset
takes is in the time: the next acquire waits for it.
The peer starts the same program, calls it once as soon as it has said that it is ready, and kills
it; that it is gone is waited for outside of the time.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures, time_each

if TYPE_CHECKING:
    from forebay.pool import Acquire

PAYLOAD = b"." * 100
READY = b"!"
START_TIMEOUT_S = 30.0

PYTHON_PROGRAM = """
import socket, sys
import numpy
connection = socket.socket(fileno=int(sys.argv[1]))
connection.send(b"!")
while data := connection.recv(4096):
    connection.sendall(data)
"""

C_PROGRAM = """
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments) {
    char bytes[4096];
    int fd = atoi(arguments[1]);
    if (count != 2 || write(fd, "!", 1) != 1) return 1;
    for (;;) {
        ssize_t got = read(fd, bytes, sizeof bytes);
        if (got <= 0) return 0;
        if (write(fd, bytes, got) != got) return 1;
    }
}
"""


def echo_over(connection: socket.socket) -> None:
    """One call of a program, over its socket."""
    connection.sendall(PAYLOAD)
    answer = connection.recv(4096)
    if answer != PAYLOAD:
        raise ValueError(f"the answer is {answer!r}")


@contextmanager
def compiled() -> Iterator[str]:
    """The C program's path."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        program = os.path.join(folder, "echo")
        command = [compiler, "-O2", "-x", "c", "-o", program, "-"]
        subprocess.run(command, input=C_PROGRAM.encode(), check=True)
        yield program


def forebay_python(cycles: int, warm_up: int) -> Figures:
    """Acquire, one call, reset, release."""
    import forebay
    from benchmarks.services import Resetting

    with forebay.ServicePool(max_size=1) as pool:

        def cycle() -> int:
            started = time.perf_counter_ns()
            with pool.acquire(Resetting, timeout=START_TIMEOUT_S) as service:
                answer = service.echo(PAYLOAD)
            took = time.perf_counter_ns() - started
            if answer != PAYLOAD:
                raise ValueError(f"the answer is {answer!r}")
            return took

        figures = time_each(cycle, count=cycles, warm_up=warm_up)
        with pool.acquire(Resetting) as service:
            if service.resets_done() != cycles + warm_up:
                raise ValueError("a release went without its reset")
    return figures


def forebay_command(cycles: int, warm_up: int) -> Figures:
    """Acquire, one call over the socket, release."""
    import forebay

    with compiled() as program, forebay.ServicePool(max_size=1) as pool:
        command = forebay.Command([program, "{fd}"])

        def cycle() -> int:
            started = time.perf_counter_ns()
            acquired: Acquire[Any] = pool.acquire(command, timeout=START_TIMEOUT_S)
            with acquired as backend:
                echo_over(backend.socket)
            return time.perf_counter_ns() - started

        return time_each(cycle, count=cycles, warm_up=warm_up)


def cold_python(cycles: int, warm_up: int) -> Figures:
    """A fresh interpreter, one call, kill."""
    return _cold([sys.executable, "-c", PYTHON_PROGRAM], cycles=cycles, warm_up=warm_up)


def cold_command(cycles: int, warm_up: int) -> Figures:
    """Start of the C program, one call, kill."""
    with compiled() as program:
        return _cold([program], cycles=cycles, warm_up=warm_up)


def _cold(command: list[str], *, cycles: int, warm_up: int) -> Figures:
    def cycle() -> int:
        started = time.perf_counter_ns()
        ours, theirs = socket.socketpair()
        number = theirs.fileno()
        process = subprocess.Popen([*command, str(number)], pass_fds=[number])
        theirs.close()
        if ours.recv(1) != READY:
            raise ValueError("the program ended before it was ready")
        echo_over(ours)
        process.kill()
        took = time.perf_counter_ns() - started
        process.wait()
        ours.close()
        return took

    return time_each(cycle, count=cycles, warm_up=warm_up)


def _contestant(name: str, function: str, environment: str, *cycles: int) -> Contestant:
    full, quick = cycles
    options = {"cycles": full, "warm_up": min(full // 10, 200)}
    return Contestant(
        name, f"benchmarks.pool.cycle:{function}", environment, options, {"cycles": quick}
    )


PYTHON = _contestant("forebay, lease of Python", "forebay_python", OWN, 20_000, 5_000)
COLD_PYTHON = _contestant("interpreter, call, kill", "cold_python", "main", 60, 20)
COMMAND = _contestant("forebay, lease of C", "forebay_command", OWN, 20_000, 5_000)
COLD_COMMAND = _contestant("C program, call, kill", "cold_command", OWN, 1_000, 300)

CLAIMS = [
    Claim("pool.lease_cycle.python.vs_cold", PYTHON, COLD_PYTHON, "p50", "ms"),
    Claim("pool.lease_cycle.command.vs_cold", COMMAND, COLD_COMMAND, "p50", "ms"),
]
