"""Reads past the page cache while another thread computes in Python and gives up the GIL to nobody.

Each return from a read waits for the GIL, 5 ms unless the interpreter's switch interval is set; a
list waits once. The table shows beside the reads which share of its speed the other thread keeps.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from benchmarks.blockio.file import random_offsets
from benchmarks.blockio.forebay import lists
from benchmarks.blockio.load import LISTS, READS
from benchmarks.blockio.meter import KEPT, RATE, repeat
from benchmarks.blockio.peers import aligned_blocks, opened
from benchmarks.claim import OWN, Claim, Contestant, Option
from benchmarks.stopwatch import Figures
from benchmarks.transport.hog import Hog

ALONE_S = 0.2


def forebay_lists(store: str, seconds: float) -> Figures:
    """Lists of `READS` reads through the blocking face."""
    with lists(store) as step:
        return _beside_a_hog(step, seconds)


def preadv_reads(store: str, seconds: float) -> Figures:
    """os.preadv, one block a call."""
    buffers = aligned_blocks(1)
    with opened(store) as (file, path):
        offsets = random_offsets(path, LISTS, READS).ravel().tolist()

        def step(number: int) -> int:
            os.preadv(file, buffers, offsets[number])
            return 1

        return _beside_a_hog(step, seconds)


def _beside_a_hog(step: Callable[[int], int], seconds: float) -> Figures:
    hog = Hog()
    threading.Thread(target=hog.spin, daemon=True).start()
    alone = hog.free_speed(ALONE_S)
    before = hog.count()
    figures = repeat(step, seconds=seconds, warm_up_s=0.0)
    kept = (hog.count() - before) / seconds / alone
    return figures | {KEPT: kept}


def _contestant(name: str, function: str) -> Contestant:
    options: dict[str, Option] = {"store": "direct", "seconds": 2.0}
    return Contestant(name, f"benchmarks.blockio.hog:{function}", OWN, options, {"seconds": 1.0})


CLAIMS = [
    Claim(
        "blockio.gil_hog.vs_preadv",
        _contestant("forebay beside a hog", "forebay_lists"),
        _contestant("os.preadv beside a hog", "preadv_reads"),
        RATE,
        "reads/s",
        higher_is_better=True,
    )
]
