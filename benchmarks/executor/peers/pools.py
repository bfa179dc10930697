"""Process pools of futures under the executor's load: the standard library's and loky's."""

from __future__ import annotations

from concurrent.futures import Executor, Future, ProcessPoolExecutor

from benchmarks.executor.load import Queue, flood
from benchmarks.executor.noop import noop
from benchmarks.stopwatch import Figures


def _flood(executor: Executor, requests: int, in_flight: int, warm_up: int) -> Figures:
    def submit(index: int) -> Future[int]:
        return executor.submit(noop, index)

    queue = Queue(submit, Future.result)
    return flood(queue, requests=requests, in_flight=in_flight, warm_up=warm_up)


def process_pool(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """ProcessPoolExecutor as it comes."""
    with ProcessPoolExecutor(workers) as executor:
        return _flood(executor, requests, in_flight, warm_up)


def loky(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """The reusable executor of loky."""
    from loky import get_reusable_executor

    with get_reusable_executor(max_workers=workers) as executor:
        return _flood(executor, requests, in_flight, warm_up)
