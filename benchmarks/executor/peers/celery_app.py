"""The application of Celery, imported by its workers and by the client."""

from __future__ import annotations

import os

from celery import Celery

# A Unix socket: no port is opened, and it is faster than one.
REDIS = f"redis+socket://{os.environ['BENCH_REDIS_SOCKET']}"

app = Celery("bench", broker=REDIS, backend=REDIS)
app.conf.broker_connection_retry_on_startup = True


@app.task
def noop(index: int) -> int:
    """Return the number."""
    return index
