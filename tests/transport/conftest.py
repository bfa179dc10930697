"""Loops and addresses that tests of the transport run on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import pytest
import uvloop

from tests.transport.loops import Run

TIMEOUT_S = 20.0


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on one of the loops, in debug mode, and bound its time."""

    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                await main

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory, debug=True) as runner:
            runner.run(within())

    return bounded


@pytest.fixture(params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a listener may listen."""
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{tmp_path}/own/a.sock"
