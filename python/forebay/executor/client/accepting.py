"""The submissions of an event loop that are on their way to the server's disk."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from forebay.errors import Error
from forebay.executor.client.outstanding import unconfirmed

__all__ = ["Accepting"]

UNACCEPTED_MAX: Final = 4096
"""Submissions under way; the next one waits for the oldest. A server keeps 65,536 calls of one
client."""


class Accepting:
    """The tasks of `AsyncClient.submit_nowait`, each of which ends with the request's id.

    The client is their parent: it waits for them when it is left, and cancels what it cannot wait
    for. A refusal stays here until the program has looked at it.

    Loop affinity: that of its client.
    """

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[str], None] = {}  # an ordered set
        self._refused: dict[asyncio.Task[str], Error] = {}

    async def start(self, submission: Coroutine[Any, Any, str]) -> asyncio.Task[str]:
        """Begin to submit, once fewer than `UNACCEPTED_MAX` are under way.

        Cancellation: the submission does not begin.
        """
        try:
            while len(self._tasks) >= UNACCEPTED_MAX:
                await asyncio.wait([next(iter(self._tasks))])
        except asyncio.CancelledError:
            submission.close()
            raise
        task = asyncio.get_running_loop().create_task(submission)
        self._tasks[task] = None
        task.add_done_callback(self._take_end)
        return task

    async def id_of(self, task: asyncio.Task[str], timeout: float | None) -> str:
        """Wait for the id; errors as of `AsyncRequest.accepted`.

        Cancellation: safe; the submission goes on.
        """
        async with asyncio.timeout(timeout):
            await asyncio.wait([task])
        self._refused.pop(task, None)
        return task.result()

    async def finish(self, timeout: float) -> list[Error]:
        """Wait until all are accepted; returns what was refused and never looked at."""
        late: set[asyncio.Task[str]] = set()
        if self._tasks:
            late = (await asyncio.wait(list(self._tasks), timeout=timeout))[1]
        refused = list(self._refused.values())
        self._refused.clear()
        if late:
            refused.append(unconfirmed("the server", len(late), timeout))
        return refused

    def cancel(self) -> None:
        """Wait for none any more; the server may accept them nevertheless."""
        for task in list(self._tasks):
            task.cancel()

    def _take_end(self, task: asyncio.Task[str]) -> None:
        del self._tasks[task]
        if not task.cancelled() and isinstance(error := task.exception(), Error):
            self._refused[task] = error
