"""Awaiting a request while its output and its progress are shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from forebay._notebook import is_notebook
from forebay.errors import Error
from forebay.executor.client.face import LAST_WORDS_S, UPDATE_S, Face, face_of, going_on

if TYPE_CHECKING:
    from forebay.executor.client.async_request import AsyncRequest

__all__ = ["watch"]


async def watch(request: AsyncRequest, timeout: float | None) -> None:
    """Show a request's output and progress until it has ended, or `timeout` seconds are over.

    Cancellation: safe; the streams end, and the request goes on.
    """
    id_ = await request.accepted(timeout)
    face = face_of(f"{request.name} {id_}".strip())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout), asyncio.TaskGroup() as tasks:
                log = tasks.create_task(_show(request.logs(), face))
                tick = tasks.create_task(_tick(face))
                await _show(request.events(), face)
                await asyncio.wait([log], timeout=LAST_WORDS_S)
                log.cancel()
                tick.cancel()
    except BaseException as error:
        error.add_note(going_on(id_))
        face.close("goes on")
        raise
    face.close()


async def _tick(face: Face) -> None:
    """Show the newest event in time, and wake the loop of a notebook.

    An interrupt of ipykernel 7 cancels a cell only when its loop next wakes up.
    """
    while is_notebook():
        await asyncio.sleep(UPDATE_S)
        face.refresh()


async def _show(stream: AsyncIterator[Any], face: Face) -> None:
    with contextlib.suppress(Error):  # the result says what went wrong
        async for told in stream:
            face.show(told)
