"""The application of Celery, imported by its workers and by the client."""

from __future__ import annotations

import os

from celery import Celery

from benchmarks.rpc.served import PAGE_BYTES

# A Unix socket: no port is opened, and it is faster than one.
REDIS = f"redis+socket://{os.environ['BENCH_REDIS_SOCKET']}"

app = Celery("bench", broker=REDIS, backend=REDIS)
app.conf.broker_connection_retry_on_startup = True
# Bytes go as they are; JSON would need base64.
app.conf.update(task_serializer="pickle", result_serializer="pickle", accept_content=["pickle"])


@app.task
def echo(data: bytes) -> bytes:
    """Return the bytes."""
    return data


@app.task
def touch(data: bytes) -> int:
    """Sum one byte of every page."""
    return sum(data[::PAGE_BYTES])
