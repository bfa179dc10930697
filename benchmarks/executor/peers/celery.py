"""Celery on Redis without persistence under the executor's load."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.executor.load import Queue, flood
from benchmarks.executor.program import running
from benchmarks.stopwatch import Figures

RESULT_S = 60.0


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextmanager
def redis_running() -> Iterator[None]:
    """A Redis that persists nothing, on the socket that the application of Celery uses."""
    redis = shutil.which("redis-server")
    if redis is None:
        raise FileNotFoundError("redis-server is not installed: apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as folder:
        path = Path(folder, "redis.sock")
        os.environ["BENCH_REDIS_SOCKET"] = str(path)
        memory_only = ("--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning")
        server = (redis, "--unixsocket", path, "--dir", folder, *memory_only)
        with running(server, ready=lambda: _answers(path)):
            yield


APPLICATION = "benchmarks.executor.peers.celery_app"


def worker_running(workers: int, module: str = APPLICATION) -> AbstractContextManager[None]:
    """Its prefork workers without the chatter between workers, which costs it time."""
    celery = Path(sys.executable).with_name("celery")
    application = ("-A", module)
    options = ("--concurrency", str(workers), "--loglevel", "error")
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return running((celery, *application, "worker", *options, *quiet))


def celery(workers: int, requests: int, in_flight: int, warm_up: int) -> Figures:
    """Many in flight; each result is read from Redis."""
    with redis_running(), worker_running(workers):
        from benchmarks.executor.peers.celery_app import noop

        def take(result: Any) -> int:
            value: int = result.get(timeout=RESULT_S)
            return value

        queue: Queue[Any] = Queue(noop.delay, take)
        return flood(queue, requests=requests, in_flight=in_flight, warm_up=warm_up)
