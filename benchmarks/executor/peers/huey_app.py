"""The application of Huey, imported by its consumer and by the client."""

from __future__ import annotations

import os

from huey import SqliteHuey

huey = SqliteHuey(
    filename=os.environ["BENCH_HUEY_FILE"], fsync=os.environ["BENCH_HUEY_FSYNC"] == "1"
)


@huey.task()
def noop(index: int) -> int:
    """Return the number."""
    return index
