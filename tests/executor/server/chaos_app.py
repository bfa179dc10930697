"""An application whose runs are counted outside of the product: each appends a line to one file."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import forebay

app = forebay.App("chaos")

MARKS = os.path.join(os.path.dirname(__file__), "marks")
"""Beside this file, wherever the worker is."""

LARGE_BYTES = 1_200_000
"""Beyond what the store keeps in itself: such a result is a file."""


def _mark(ctx: forebay.Context, label: str) -> None:
    descriptor = os.open(MARKS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{label} {ctx.id} {ctx.attempt}\n".encode())
    os.close(descriptor)


@app.request()
def once(ctx: forebay.Context, label: str, seconds: float = 0.0) -> str:
    """May run once."""
    _mark(ctx, label)
    sys.stdout.write(f"{label}\n")
    time.sleep(seconds)
    return label


@app.request(lane="short")
def short(ctx: forebay.Context, label: str, seconds: float = 0.0) -> str:
    """May run once, beside those that are long."""
    _mark(ctx, label)
    return label


@app.request()
async def nap(ctx: forebay.Context, label: str, seconds: float = 0.0) -> str:
    """May run once, among others in one process."""
    _mark(ctx, label)
    await asyncio.sleep(seconds)
    return label


@app.request(retries=3, backoff="10ms")
def again(ctx: forebay.Context, label: str, seconds: float = 0.0) -> str:
    """May run four times."""
    _mark(ctx, label)
    time.sleep(seconds)
    return label


@app.request(retries=3, backoff="10ms")
def large(ctx: forebay.Context, label: str, seconds: float = 0.0) -> str:
    """Has a result that becomes a file."""
    _mark(ctx, label)
    return label.ljust(LARGE_BYTES, ".")
