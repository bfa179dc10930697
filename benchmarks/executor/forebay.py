"""Our server under the executor's loads: SQLite on the disk, two guaranteed workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import processes
from benchmarks.executor.load import Queue, flood, one_at_a_time
from benchmarks.executor.program import folder_on_disk
from benchmarks.stopwatch import MS, Figures, summary

if TYPE_CHECKING:
    import forebay

TARGET = "benchmarks.executor.application:app"
RESULT_S = 60.0
DRAIN_S = 5.0
SYNCS = 200
PAGE = b"." * 4096


@contextmanager
def served(
    workers: int, synchronous: str = "full", *, target: str = TARGET, **settings: str
) -> Iterator[forebay.Client]:
    """A client and a server of its own, which it starts and which is thus this process's child.

    Args:
        workers: of the short lane, which stay.
        synchronous: as the setting.
        target: the application.
        settings: further ones of the executor, in capitals.
    """
    import forebay

    with folder_on_disk() as folder:
        os.environ |= {
            "FOREBAY_STATE_DIR": str(folder),
            "XDG_RUNTIME_DIR": str(folder),
            "FOREBAY_EXECUTOR_MAX_WORKERS": str(workers),
            "FOREBAY_EXECUTOR_SHORT_WORKERS": str(workers),
            "FOREBAY_EXECUTOR_LONG_WORKERS": "0",
            "FOREBAY_EXECUTOR_SYNCHRONOUS": synchronous,
        }
        os.environ |= {f"FOREBAY_EXECUTOR_{name}": value for name, value in settings.items()}
        with forebay.Client(app=target) as client:
            server = os.pidfd_open(client.info()["pid"])
            try:
                yield client
            finally:
                client.ask("stop", DRAIN_S)
                processes.wait_for_end(server)


def queue(client: forebay.Client) -> Queue[Any]:
    """The no-op of our application."""
    from benchmarks.executor.application import noop

    def submit(index: int) -> Any:
        return client.submit_nowait(noop, index)

    def take(request: Any) -> int:
        value: int = request.result(RESULT_S)
        return value

    return Queue(submit, take)


def durable(
    workers: int, requests: int, in_flight: int, warm_up: int, synchronous: str = "full"
) -> Figures:
    """Many in flight; each request and each end is committed before it is told."""
    with served(workers, synchronous) as client:
        return flood(queue(client), requests=requests, in_flight=in_flight, warm_up=warm_up)


def durable_alone(workers: int, requests: int, warm_up: int) -> Figures:
    """One at a time, two syncs each; beside it what a sync takes on this disk."""
    with served(workers) as client:
        figures = one_at_a_time(queue(client), requests=requests, warm_up=warm_up)
    with folder_on_disk() as folder:
        return figures | {"fsync_p50": _sync_ms(folder / "synced")}


def _sync_ms(path: Path) -> float:
    """The p50 of appending a page to a file and having it on the disk, in milliseconds."""
    samples = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(PAGE)
            begun = time.perf_counter_ns()
            os.fsync(file.fileno())
            samples.append(time.perf_counter_ns() - begun)
    return summary(samples, unit_ns=MS)["p50"]
