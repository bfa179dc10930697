"""A coroutine on each event loop, within a time: a fixture for those who import it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

Run = Callable[[Awaitable[None]], None]
"""Runs a coroutine on one of the loops, within a bounded time."""
TIMEOUT_S = 20.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on one of the loops, in debug mode, for at most the module's TIMEOUT_S."""

    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(getattr(request.module, "TIMEOUT_S", TIMEOUT_S)):
                await main

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory, debug=True) as runner:
            runner.run(within())

    return bounded
