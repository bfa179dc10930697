"""A task of Celery with its result, on Redis without persistence.

A fresh process for one task is nothing that it offers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.executor.peers.celery import RESULT_S, redis_running, worker_running
from benchmarks.product.idle import at_rest
from benchmarks.rpc.call import ARRAY_BYTES, MS, PAYLOAD
from benchmarks.rpc.served import PAGE_BYTES
from benchmarks.stopwatch import Figures, time_calls

APPLICATION = "benchmarks.product.peers.celery_app"
PAGES = len(range(0, ARRAY_BYTES, PAGE_BYTES))


@contextmanager
def _application() -> Iterator[Any]:
    # As root it refuses to unpickle, unless asked twice: only this process reaches its Redis.
    os.environ["C_FORCE_ROOT"] = "1"
    with redis_running(), worker_running(1, APPLICATION):
        from benchmarks.product.peers import celery_app

        yield celery_app


def calls(calls: int, warm_up: int) -> Figures:
    """One call after the other; each result is read from Redis."""
    with _application() as application:

        def call(_: int) -> bool:
            return bool(application.echo.delay(PAYLOAD).get(timeout=RESULT_S) == PAYLOAD)

        return time_calls(call, calls=calls, warm_up=warm_up)


def array(calls: int, warm_up: int) -> Figures:
    """As many bytes as the array has: numpy is not in its environment, and would cost it more."""
    content = bytearray(b"\1" * ARRAY_BYTES)
    with _application() as application:

        def call(number: int) -> bool:
            content[0] = number % 256
            answer = application.touch.delay(bytes(content)).get(timeout=RESULT_S)
            return bool(answer == PAGES - 1 + number % 256)

        return time_calls(call, calls=calls, warm_up=warm_up, unit_ns=MS)


def idle() -> Figures:
    """At rest, after a call: the client, Redis, and a worker with one process below it."""
    with _application() as application:
        assert application.echo.delay(PAYLOAD).get(timeout=RESULT_S) == PAYLOAD
        return at_rest()
