"""Awaiting a request while its output and its progress are shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from forebay._notebook import is_notebook
from forebay.errors import Error
from forebay.executor.client.display import LAST_WORDS_S, UPDATE_S, Display, display_of, going_on

if TYPE_CHECKING:
    from forebay.executor.client.async_request import AsyncRequest

__all__ = ["watch"]


async def watch(request: AsyncRequest, timeout: float | None) -> None:
    """Show a request's output and progress until it has ended, or `timeout` seconds are over.

    Cancellation: safe; the streams end, and the request goes on.
    """
    id_ = await request.accepted(timeout)
    display = display_of(f"{request.name} {id_}".strip())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as tasks:
                log = tasks.create_task(_show(request.logs(), display))
                tick = tasks.create_task(_tick(display))
                await _show(request.events(), display)
                await asyncio.wait([log], timeout=LAST_WORDS_S)
                log.cancel()
                tick.cancel()
    except BaseException as error:
        error.add_note(going_on(id_))
        display.close("goes on")
        raise
    display.close()


async def _tick(display: Display) -> None:
    """Show the newest event in time, and wake the loop of a notebook.

    An interrupt of ipykernel 7 cancels a cell only when its loop next wakes up.
    """
    while is_notebook():
        await asyncio.sleep(UPDATE_S)
        display.refresh()


async def _show(stream: AsyncIterator[Any], display: Display) -> None:
    with contextlib.suppress(Error):  # the result says what went wrong
        async for told in stream:
            display.show(told)
