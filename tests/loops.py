"""A coroutine on each event loop, within a time: a fixture for those who import it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from forebay.transport import new_event_loop

Run = Callable[[Awaitable[None]], None]
"""Runs a coroutine on one of the loops, within a bounded time."""
TIMEOUT_S = 20.0


FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
    "forebay": new_event_loop,
}


@pytest.fixture(params=FACTORIES)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on one of the loops for at most the module's TIMEOUT_S.

    asyncio's is in debug mode, in which tasks are woken another way.
    """

    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(getattr(request.module, "TIMEOUT_S", TIMEOUT_S)):
                await main

        debug = request.param == "asyncio"
        with asyncio.Runner(loop_factory=FACTORIES[request.param], debug=debug) as runner:
            runner.run(within())

    return bounded
