"""DBOS Transact under the executor's load: a durable queue on SQLite, inside the program.

Its workflows run in threads of this process. It polls its database for work and for results, each
a thousand times a second, which is the most that it admits for other waits, or as often as it does
by itself.
"""

from __future__ import annotations

from typing import Any

from benchmarks.executor.load import Queue, flood
from benchmarks.executor.program import folder_on_disk
from benchmarks.stopwatch import Figures

POLL_S = 0.001


def dbos(
    workers: int, requests: int, in_flight: int, warm_up: int, polls: str = "often"
) -> Figures:
    """Many in flight.

    Args:
        workers: so many workflows at once, or for 0 as many as come, as is its default.
        requests: in all.
        in_flight: at once.
        warm_up: requests before.
        polls: "often", or "default".
    """
    from dbos import DBOS, DBOSConfig

    polling: dict[str, Any] = {"polling_interval_sec": POLL_S} if polls == "often" else {}

    @DBOS.workflow()
    def noop(index: int) -> int:
        return index

    with folder_on_disk() as folder:
        config = DBOSConfig(
            name="bench",
            system_database_url=f"sqlite:///{folder / 'dbos.sqlite'}",
            log_level="ERROR",
        )
        DBOS(config=config)
        DBOS.launch()
        queue = DBOS.register_queue("bench", worker_concurrency=workers or None, **polling)

        def submit(index: int) -> Any:
            return queue.enqueue(noop, index)

        def take(handle: Any) -> int:
            value: int = handle.get_result(**polling)
            return value

        try:
            load: Queue[Any] = Queue(submit, take)
            return flood(load, requests=requests, in_flight=in_flight, warm_up=warm_up)
        finally:
            DBOS.destroy()
