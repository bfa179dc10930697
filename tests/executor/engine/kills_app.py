"""Requests that note where and when each of their runs begins, outside of the product."""

from __future__ import annotations

import asyncio
import os
import time

import forebay
from forebay.testing import Ledger

app = forebay.App("kills")


def _begun(ctx: forebay.Context, key: str) -> None:
    """First in the ledger, which counts; then where, for the time that its loss is told in."""
    ledger = Ledger.current()
    assert ledger is not None
    ledger.begun(key, ctx)
    line = f"{key} {ctx.attempt} {os.environ['FOREBAY_TEST_NODE']} {time.monotonic()}\n"
    descriptor = os.open(f"{ledger.path}.runs", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@app.request(memory="10MB")
def once(ctx: forebay.Context, key: str, seconds: float) -> str:
    """May begin once."""
    _begun(ctx, key)
    time.sleep(seconds)
    return key


@app.request(memory="10MB", lane="short", ahead=4)
def short(ctx: forebay.Context, key: str, seconds: float) -> str:
    """May begin once, and is handed to a worker ahead."""
    _begun(ctx, key)
    time.sleep(seconds / 10)
    return key


@app.request(memory="10MB")
async def nap(ctx: forebay.Context, key: str, seconds: float) -> str:
    """May begin once, among others in one process."""
    _begun(ctx, key)
    await asyncio.sleep(seconds)
    return key


@app.request(memory="10MB", retries=50, backoff="10ms", max_backoff="100ms")
def again(ctx: forebay.Context, key: str, seconds: float) -> str:
    """May begin again."""
    _begun(ctx, key)
    time.sleep(5 * seconds)
    return key


@app.request(memory="10MB", idempotent=True)
def idempotent(ctx: forebay.Context, key: str, seconds: float) -> str:
    """May begin again where it is not known whether it ran."""
    _begun(ctx, key)
    time.sleep(5 * seconds)
    return key


@app.request(memory="10MB")
def long(ctx: forebay.Context, key: str, seconds: float) -> str:
    """May begin once, and is under way when something dies."""
    _begun(ctx, key)
    time.sleep(1.0 + 10 * seconds)
    return key
