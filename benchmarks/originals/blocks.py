"""blockio-uring (PR 22): bytes allocated per block that is read, counted from outside; IOPS.

262,144 reads of 4 KiB, batches of 32, random indexes, O_DIRECT, a few threads with a series of
batches each. The counter is preloaded into the process and counts what malloc and Python's own
allocators are asked for; it slows, so the rate is of a run without it, beside fio in the same run.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.blockio import claims as blockio
from benchmarks.blockio.file import prepare
from benchmarks.blockio.lists import FIO_DIRECT
from benchmarks.blockio.meter import RATE
from benchmarks.blockio.stores import told
from benchmarks.claim import OWN, Contestant
from benchmarks.harness import Series
from benchmarks.originals.original import PUBLISHED, Original, Table, failures, figure
from benchmarks.runner import ROOT
from benchmarks.stopwatch import Figures

SOURCE = Path(__file__).with_suffix(".c")
READS, BATCH, BLOCK_BYTES = 262_144, 32, 4096
THREADS = 4
SEED = 22
PUBLISHED_BYTES = {
    "before": (348_802_552, 1331),
    "first step": (57_904_976, 221),
    "after": (28_566_920, 109),
}


def reads(reads: int) -> Figures:
    """Bytes allocated, in a process with the counter; and the rate, in one without."""
    store = told().path("direct")
    prepare(store, "direct")
    command = [sys.executable, "-P", "-m", "benchmarks.originals.blocks", str(store), str(reads)]
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        library = f"{folder}/counting.so"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", library, str(SOURCE), "-ldl"], check=True
        )
        counted = _run(command, {"LD_PRELOAD": library})
    timed = _run(command, {})
    return {
        "rate": timed["rate"],
        "bytes": counted["bytes"],
        "each": counted["bytes"] / reads,
        "calls": counted["calls"],
    }


def _run(command: list[str], more: dict[str, str]) -> dict[str, float]:
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | more, capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr.strip().splitlines()[-1])
    result: dict[str, float] = json.loads(ended.stdout)
    return result


def _counter() -> Any:
    library = ctypes.CDLL(None)
    if not hasattr(library, "count_of_bytes"):
        return None
    library.count_of_bytes.restype = library.count_of_calls.restype = ctypes.c_ulong
    if library.count_python():
        raise SystemExit("this program has no Python allocators to count")
    return library


def read_all(path: str, count: int) -> dict[str, float]:
    """Read so many blocks at random by `THREADS` threads, and say what that took."""
    import numpy as np

    from forebay.blockio import BlockFile, Queue
    from forebay.memory import Arena

    counter = _counter()
    blocks = Path(path).stat().st_size // BLOCK_BYTES
    arena = Arena("64MiB")
    batches = count // THREADS // BATCH
    ready = threading.Barrier(THREADS + 1)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        random = np.random.default_rng(SEED + number)
        offsets = random.integers(blocks, size=(batches, BATCH), dtype=np.uint64) * BLOCK_BYTES
        out = arena.empty((BATCH, BLOCK_BYTES), np.uint8)
        room = np.zeros(BATCH, np.int64)
        rows = list(offsets)
        with (
            Queue(max_batch=BATCH, max_concurrency=BATCH, arena=arena) as queue,
            BlockFile(path, direct=True, queue=queue) as file,
        ):
            file.read_many(rows[0], out, results=room)
            ready.wait()
            ready.wait()
            for row in rows:
                file.read_many(row, out, results=room)
            ready.wait()

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)
            ready.abort()

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        ready.wait()
        before = (counter.count_of_bytes(), counter.count_of_calls()) if counter else (0, 0)
        started = time.perf_counter()
        ready.wait()
        ready.wait()
    except threading.BrokenBarrierError:
        raise failed[0] from None
    took = time.perf_counter() - started
    after = (counter.count_of_bytes(), counter.count_of_calls()) if counter else (0, 0)
    return {
        "rate": batches * BATCH * THREADS / took,
        "bytes": after[0] - before[0],
        "calls": after[1] - before[1],
    }


OURS = Contestant(
    "forebay, batches of 32", "benchmarks.originals.blocks:reads", OWN, {"reads": READS}
)


def tables(series: Mapping[str, Series]) -> list[Table]:
    """Allocations, and the rate beside fio's."""
    lines = [
        (name, PUBLISHED, f"{total:,}", f"{each:,}", "-")
        for name, (total, each) in PUBLISHED_BYTES.items()
    ]
    lines += [
        (
            f"forebay, {THREADS} threads",
            "here",
            figure(series, OURS, "bytes"),
            figure(series, OURS, "each", ".2f"),
            figure(series, OURS, "rate"),
        ),
        ("fio, one thread, depth 128", "here", "-", "-", figure(series, FIO_DIRECT, RATE)),
    ]
    return [
        Table(
            "Block reads: bytes allocated, 262,144 blocks of 4 KiB",
            [
                "Batches of 32, random indexes, O_DIRECT.",
                "Published: GHC's allocations; ours: malloc and Python's allocators together.",
                *failures(series),
            ],
            ("state", "measured", "allocated in all", "per operation", "IOPS"),
            lines,
        )
    ]


def around() -> AbstractContextManager[list[str]]:
    """The file that is read."""
    return blockio.around([], limits=False)


BLOCKS = Original("blocks", [(OURS, ["rate"]), (FIO_DIRECT, [RATE])], tables, around=around)

if __name__ == "__main__":
    print(json.dumps(read_all(sys.argv[1], int(sys.argv[2]))))
