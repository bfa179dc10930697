"""Huey on SQLite under the executor's loads."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.executor.load import POLL_S, Queue, flood, one_at_a_time
from benchmarks.executor.program import folder_on_disk, running
from benchmarks.stopwatch import Figures

# Its consumer looks for work this often when there is none: a hundredth of its default.
LOOK_S = ("--delay", "0.001", "--max-delay", "0.01")


def _take(result: Any) -> int:
    while (value := result.get()) is None:
        time.sleep(POLL_S)
    number: int = value
    return number


@contextmanager
def _queue(workers: int, *, fsync: bool) -> Iterator[Queue[Any]]:
    with folder_on_disk() as folder:
        os.environ["BENCH_HUEY_FILE"] = str(folder / "huey.db")
        os.environ["BENCH_HUEY_FSYNC"] = str(int(fsync))
        consumer = (
            *(
                Path(sys.executable).with_name("huey_consumer"),
                "benchmarks.executor.peers.huey_app.huey",
            ),
            *("--workers", str(workers), "--worker-type", "process"),
            *("--quiet", "--no-periodic", *LOOK_S),
        )
        with running(consumer):
            from benchmarks.executor.peers.huey_app import noop

            yield Queue(noop, _take)


def without_fsync(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Many in flight, with its fsync off."""
    with _queue(workers, fsync=False) as queue:
        return flood(queue, requests=requests, in_flight=in_flight, warm_up=warm_up)


def with_fsync(workers: int, requests: int, warm_up: int) -> Figures:
    """One at a time, each of its commits on the disk."""
    with _queue(workers, fsync=True) as queue:
        return one_at_a_time(queue, requests=requests, warm_up=warm_up)
