"""A minimal FastAPI application: a handler that takes one JSON body and does nothing."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Arguments(BaseModel):
    """What the no-op takes."""

    index: int


@app.get("/ready")
async def ready() -> None:
    """Answer."""


@app.post("/noop", status_code=202)
async def noop(arguments: Arguments) -> None:
    """Do nothing."""
