"""What tests of messages need on each loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.transport import AsyncConnection


async def echo(connection: AsyncConnection) -> None:
    """Answer each message with itself."""
    async for message in connection:
        await connection.send(message)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    while not holds():  # noqa: ASYNC110 - nobody announces it
        await asyncio.sleep(0.001)
