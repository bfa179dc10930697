"""Calls at their honest limit: a peer that looks as long as ours, and the CPU that looking costs.

A bare socket between two Python processes whose ends look for as long as ours do (`SPIN_US`),
before they sleep: what a call costs beyond the bytes and the wake-up.
The processor time is that of everything below the client's process, the keeper included; paced
calls come a thousand a second, so that each end sleeps in between.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable

from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.look import spin_us
from benchmarks.rpc.call import (
    CALLS,
    CALLS_QUICK,
    FOREBAY_CALLS,
    PAYLOAD,
    PIPE_CALLS,
)
from benchmarks.stopwatch import Figures, time_calls

PER_SECOND = 1_000


def _receive(end: socket.socket) -> Callable[[], bytes]:
    """A blocking receive that looks first, and lets whoever shares the core run in between."""
    look_ns = spin_us() * 1_000
    poller = select.poll()
    poller.register(end, select.POLLIN)
    clock, poll, give_way, recv = time.perf_counter_ns, poller.poll, os.sched_yield, end.recv

    def receive() -> bytes:
        until = clock() + look_ns
        while not poll(0):
            give_way()
            if clock() > until:
                poll()
                break
        return recv(len(PAYLOAD))

    return receive


def _spinning_echo(end: socket.socket) -> None:
    receive, send = _receive(end), end.sendall
    while data := receive():
        send(data)


def spinning_socket_calls(calls: int, warm_up: int) -> Figures:
    """Bare bytes on a Unix socket pair, no framing; both ends look before they sleep."""
    ours, theirs = socket.socketpair()
    context = multiprocessing.get_context("spawn")
    context.Process(target=_spinning_echo, args=(theirs,), daemon=True).start()
    receive, send = _receive(ours), ours.sendall

    def call(_: int) -> bool:
        send(PAYLOAD)
        return receive() == PAYLOAD

    return time_calls(call, calls=calls, warm_up=warm_up)


def _contestant(
    name: str, function: str, environment: str = OWN, per_second: int = 0
) -> Contestant:
    options = {**CALLS, "per_second": per_second} if per_second else CALLS
    return Contestant(name, function, environment, options, CALLS_QUICK)


SPINNING_SOCKET = _contestant("socket that looks", "benchmarks.rpc.limit:spinning_socket_calls")
FOREBAY_PACED = _contestant(
    "forebay call, paced", "benchmarks.rpc.call:forebay_calls", per_second=PER_SECOND
)
PIPE_PACED = _contestant(
    "Pipe call, paced", "benchmarks.rpc.call:pipe_calls", "main", per_second=PER_SECOND
)

CLAIMS = [
    Claim("rpc.call.vs_spinning_socket", FOREBAY_CALLS, SPINNING_SOCKET, "mean", "us"),
    Claim("rpc.call.cpu.vs_pipe", FOREBAY_CALLS, PIPE_CALLS, "cpu", "us"),
    Claim("rpc.call.cpu_paced.vs_pipe", FOREBAY_PACED, PIPE_PACED, "cpu", "us"),
]
