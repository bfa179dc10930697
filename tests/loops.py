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


FACTORIES: dict[str, tuple[Callable[[], asyncio.AbstractEventLoop], bool]] = {
    "asyncio": (asyncio.SelectorEventLoop, False),
    "asyncio-debug": (asyncio.SelectorEventLoop, True),
    "uvloop": (uvloop.new_event_loop, False),
    "forebay": (new_event_loop, False),
}


@pytest.fixture(params=FACTORIES)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on one of the loops for at most the module's TIMEOUT_S.

    In debug mode tasks are woken another way.
    """

    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(getattr(request.module, "TIMEOUT_S", TIMEOUT_S)):
                await main

        factory, debug = FACTORIES[request.param]
        with asyncio.Runner(loop_factory=factory, debug=debug) as runner:
            runner.run(within())

    return bounded
