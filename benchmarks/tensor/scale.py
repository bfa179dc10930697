"""Pulls from a server with 100,000 tensors against one with ten; the limit is raised by name.

Both hold the same rows of 4 KiB, and the number of tensors alone differs; 16 pulls at a time, as
in the other rows always of the same, which a fixed seed draws from all.
Beside it, without a promise: each time 16 others. What that costs is the client's: of 100,000
tensors its handles lie beyond the caches (perf: in the interpreter, at the attributes of handles;
the server's share stays as it is), 3 to 4 us a pull on a machine whose cache others use too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from benchmarks import processes
from benchmarks.claim import OWN, Claim, Contestant
from benchmarks.stopwatch import Figures
from benchmarks.tensor.load import IN_FLIGHT, SEED, WRONG, Bytes
from benchmarks.tensor.round import stay
from benchmarks.tensor.tcp import QUICK, TIMES
from benchmarks.transport.processes import Children

MANY, FEW = 100_000, 10
ROWS = MANY
ROW_BYTES = 4 << 10
SAME, OTHERS = 1, 2_000
LIMITS = {"FOREBAY_TENSOR_MAX_TENSORS": str(2 * MANY)}
ARENA = "1GiB"


def rows(first: int, count: int) -> Bytes:
    """Rows of these numbers: each begins with its own, and goes on counting."""
    starts = np.arange(first, first + count, dtype="<u8")[:, np.newaxis]
    return (starts + np.arange(ROW_BYTES // 8, dtype="<u8")).view(np.uint8)


def _serve(pipe: Connection, tensors: int) -> None:
    from forebay.tensor import TensorServer

    each = ROWS // tensors
    named = {f"tensor/{number}": rows(number * each, each) for number in range(tensors)}
    with TensorServer(named, "tcp://127.0.0.1:0", arena=ARENA, fabric="stream") as server:
        pipe.send(server.url)
        stay(pipe)


def pulls_from(tensors: int, draws: int, seconds: float, warm_up_s: float) -> Figures:
    """Pull single rows for so long, so many draws in turn; microseconds of each."""
    from forebay.tensor import TensorClient

    os.environ |= LIMITS
    each = ROWS // tensors
    with Children() as children:
        url = children.start(_serve, tensors).reply()
        with TensorClient(url, fabric="stream") as client:
            handles = [client.tensor(f"tensor/{number}") for number in range(tensors)]
            out = np.full((IN_FLIGHT, 1, ROW_BYTES), WRONG, np.uint8)
            drawn = np.random.default_rng(SEED).integers(ROWS, size=(draws, IN_FLIGHT)).tolist()
            batches = [
                [
                    (handles[row // each], slice(row % each, row % each + 1), into)
                    for row, into in zip(numbers, out, strict=True)
                ]
                for numbers in drawn
            ]

            def pull(count: int) -> None:
                client.pull_many(batches[count % draws])

            figures = _timed(pull, seconds, warm_up_s)
            _check(pull, out, drawn)
    return figures


def _timed(pull: Callable[[int], None], seconds: float, warm_up_s: float) -> Figures:
    clock = time.perf_counter
    count, until = 0, clock() + warm_up_s
    while clock() < until:
        pull(count)
        count += 1
    watched = processes.tree()
    cpu, first, started = processes.cpu_ns(watched), count, clock()
    while clock() < started + seconds:
        pull(count)
        count += 1
    took, pulled = clock() - started, (count - first) * IN_FLIGHT
    return {
        "mean": took / pulled * 1e6,
        "cpu": (processes.cpu_ns(watched) - cpu) / pulled / 1e3,
        "memory_mb": processes.memory_bytes(watched) / 1e6,
    }


def _check(pull: Callable[[int], None], out: Bytes, drawn: list[list[int]]) -> None:
    for count, numbers in enumerate(drawn):
        pull(count)
        for row, into in zip(numbers, out, strict=True):
            if not np.array_equal(into, rows(row, 1)):
                raise ValueError(f"other bytes came than row {row} has")


def _row(name: str, draws: int) -> Claim:
    ours, peer = (
        Contestant(
            f"forebay, {tensors:,} tensors, {'other' if draws > 1 else 'the same'} rows",
            "benchmarks.tensor.scale:pulls_from",
            OWN,
            {**TIMES, "tensors": tensors, "draws": draws},
            QUICK,
        )
        for tensors in (MANY, FEW)
    )
    return Claim(f"tensor.scale.{name}", ours, peer, "mean", "us")


CLAIMS = [
    _row("tensors_1e5.vs_10", SAME),
    _row("tensors_1e5.others.vs_10", OTHERS),
]
