"""One read at a time, from the call until the block is there, against os.preadv.

Both read into memory that is ready, at offsets that are ready.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.blockio.file import check, random_offsets
from benchmarks.blockio.forebay import block_file, memory, queue
from benchmarks.blockio.peers import aligned_blocks, opened
from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.stopwatch import Figures, summary

US = 1_000  # nanoseconds


def forebay_reads(store: str, calls: int, warm_up: int) -> Figures:
    """`BlockFile.read` of the blocking face."""
    with queue("ring") as (made, arena):
        file_of_blocks, path = block_file(store, made)
        offsets = random_offsets(path, warm_up + calls, 1).ravel().tolist()
        out = memory(arena, 1)
        with file_of_blocks as file:

            def read(number: int) -> None:
                file.read(offsets[number], out)

            figures = _timed(read, calls, warm_up)
        check([offsets[-1]], out)
        return figures


def preadv_reads(store: str, calls: int, warm_up: int) -> Figures:
    """os.preadv."""
    buffers = aligned_blocks(1)
    with opened(store) as (file, path):
        offsets = random_offsets(path, warm_up + calls, 1).ravel().tolist()

        def read(number: int) -> None:
            os.preadv(file, buffers, offsets[number])

        figures = _timed(read, calls, warm_up)
        check([offsets[-1]], np.frombuffer(buffers[0], np.uint8)[None, :])
        return figures


def _timed(read: Callable[[int], Any], calls: int, warm_up: int) -> Figures:
    """Durations of the reads in microseconds; the last one is number `warm_up + calls - 1`."""
    for number in range(warm_up):
        read(number)
    clock, samples = time.perf_counter_ns, []
    for number in range(warm_up, warm_up + calls):
        started = clock()
        read(number)
        samples.append(clock() - started)
    return summary(samples, unit_ns=US)


# A quarter of a second each on the machine that these were chosen on.
CALLS = {"direct": 10_000, "cached": 150_000}


def _contestant(name: str, function: str, store: str) -> Contestant:
    options: dict[str, Option] = {"store": store, "calls": CALLS[store] * 4, "warm_up": 1_000}
    return Contestant(
        f"{name}, {store}",
        f"benchmarks.blockio.depth1:{function}",
        OWN,
        options,
        {"calls": CALLS[store]},
    )


def _row(store: str, rounds_min: int = 0) -> Claim:
    return Claim(
        f"blockio.depth1.{store}.vs_preadv",
        _contestant("forebay, one at a time", "forebay_reads", store),
        _contestant("os.preadv, one at a time", "preadv_reads", store),
        "p50",
        "us",
        rounds_min=rounds_min,
    )


CLAIMS = [_row("direct", rounds_min=5), _row("cached", rounds_min=5)]
