"""Running asynchronous generators: as `items` beside it, on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from forebay.executor.worker.entry import Unkept

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from forebay.executor.app.context import Context
    from forebay.executor.worker.entry import Entry
    from forebay.executor.worker.items import Items, ItemsFile, Run

__all__ = ["run_async"]

TURN_S: Final = 0.001
"""A generator that does not wait lets others run after so long."""


async def run_async(
    items: Items, entry: Entry, run: Run, blob: Any, context: Context | None
) -> None:
    """Run an asynchronous generator to its end, and keep its items."""
    with items.open(entry, run, asyncio.get_running_loop()) as kept:
        try:
            await _run(entry.call(blob, context), kept)
        except Exception:
            with contextlib.suppress(Unkept):
                await asyncio.to_thread(kept.sync)
            raise
        await asyncio.to_thread(kept.sync)


async def _run(generator: AsyncGenerator[Any, None], kept: ItemsFile) -> None:
    """Keep what it yields. Whatever happens, it has ended after that."""
    loop = asyncio.get_running_loop()
    turn_until = loop.time() + TURN_S
    try:
        async for value in generator:
            kept.add(value)
            if loop.time() >= turn_until:
                await asyncio.sleep(0)
                turn_until = loop.time() + TURN_S
    except BaseException as error:
        try:
            await generator.aclose()
        except Exception as other:
            error.add_note(f"and the generator raised {other!r} when it was closed")
        raise
