"""Procrastinate on PostgreSQL with its defaults, one request at a time.

It keeps no results, so what is taken is that the request has succeeded.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.executor.load import POLL_S, Queue, one_at_a_time
from benchmarks.executor.peers.postgres import running_postgres
from benchmarks.executor.program import running
from benchmarks.stopwatch import Figures


def procrastinate(workers: int, requests: int, warm_up: int) -> Figures:
    """Each commit on the disk; its worker is woken by the database."""
    with running_postgres() as connection:
        os.environ["BENCH_POSTGRES"] = connection
        from benchmarks.executor.peers.procrastinate_app import app, noop

        with app.open():
            app.schema_manager.apply_schema()
            numbers: dict[int, int] = {}

            def submit(index: int) -> int:
                job: int = noop.defer(index=index)
                numbers[job] = index
                return job

            def take(job: int) -> int:
                while app.job_manager.get_job_status(job).value != "succeeded":
                    time.sleep(POLL_S)
                return numbers.pop(job)

            worker = (
                *(Path(sys.executable).with_name("procrastinate"),),
                *("--app", "benchmarks.executor.peers.procrastinate_app.app"),
                *("worker", "--concurrency", str(workers)),
            )
            with running(worker):
                return one_at_a_time(Queue(submit, take), requests=requests, warm_up=warm_up)
