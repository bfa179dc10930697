"""FastAPI in front of Celery, as its users put it there: the answer has the id of the task."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.executor.peers.celery_app import noop

app = FastAPI()


class Arguments(BaseModel):
    """What the no-op takes."""

    index: int


@app.get("/ready")
async def ready() -> None:
    """Answer."""


@app.post("/on_loop", status_code=202)
async def on_loop(arguments: Arguments) -> dict[str, str]:
    """Send the task in the loop, which waits for Redis."""
    return {"id": noop.delay(arguments.index).id}


@app.post("/in_threads", status_code=202)
def in_threads(arguments: Arguments) -> dict[str, str]:
    """Send it in one of FastAPI's threads."""
    return {"id": noop.delay(arguments.index).id}
