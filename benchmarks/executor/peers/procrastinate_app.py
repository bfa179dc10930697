"""The application of Procrastinate, imported by its worker and by the client."""

from __future__ import annotations

import os

from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_POSTGRES"]))


@app.task
async def noop(index: int) -> int:
    """Return the number; as a coroutine it needs no thread in the worker."""
    return index
