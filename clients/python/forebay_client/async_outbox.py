"""Submissions that a program does not await, sent by a task of their own.

As `outbox`, for the tasks of one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from forebay_client.errors import ClosedError, DeadlineError, Error
from forebay_client.outbox import (
    GATHERED_MAX,
    UNACCEPTED_MAX,
    Sent,
    not_accepted,
    settled,
    unexpected,
    unseen,
)
from forebay_client.submission import Submission

__all__ = ["AsyncOutbox"]


class AsyncOutbox:
    """The submissions of one client, which is the parent of the task.

    Args:
        send: submits several, and returns what became of each.

    Loop affinity: that of its client.
    """

    def __init__(
        self, send: Callable[[Sequence[Submission]], Awaitable[Sequence[str | Error]]]
    ) -> None:
        self._send = send
        self._changed = asyncio.Condition()
        self._waiting: deque[Sent] = deque()
        self._under_way = 0
        self._refused: list[Sent] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, submission: Submission) -> Sent:
        """Begin to submit, once fewer than `UNACCEPTED_MAX` are under way.

        Cancellation: safe; the submission does not begin.
        """
        sent = Sent(submission)
        async with self._changed:
            await self._changed.wait_for(lambda: self._count() < UNACCEPTED_MAX)
            self._waiting.append(sent)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run())
        return sent

    async def id_of(self, sent: Sent, timeout: float | None) -> str:
        """Wait for the id; errors as of `Outbox.id_of`.

        Cancellation: safe; the submission goes on.
        """
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline, self._changed:
                await self._changed.wait_for(lambda: sent.outcome is not None)
        except TimeoutError:
            if not deadline.expired() or timeout is None:
                raise
            raise not_accepted(sent, timeout) from None
        sent.looked_at = True
        if isinstance(sent.outcome, Error):
            raise sent.outcome
        assert sent.outcome is not None  # it was waited for
        return sent.outcome

    async def finish(self, timeout: float) -> list[Error]:
        """Wait until all are accepted; returns what was refused and never looked at."""
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: not self._count())
        except TimeoutError as error:
            if isinstance(error, DeadlineError):
                raise
        refused, self._refused = self._refused, []
        return unseen(refused, self._count(), timeout)

    async def aclose(self) -> None:
        """End its task; what was not sent is not sent any more. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        async with self._changed:
            for sent in self._waiting:
                sent.outcome = ClosedError("the client was closed before this was submitted")
            self._waiting.clear()
            self._changed.notify_all()

    def _count(self) -> int:
        return len(self._waiting) + self._under_way

    async def _run(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(GATHERED_MAX, len(self._waiting)))]
            self._under_way = len(some)
            outcomes: Sequence[str | Error] = [_left()] * len(some)
            try:
                outcomes = await self._outcomes(some)
            finally:  # also where this task is cancelled
                await self._settle(some, outcomes)

    async def _outcomes(self, some: Sequence[Sent]) -> Sequence[str | Error]:
        try:
            return await self._send([sent.submission for sent in some])
        except Exception as error:  # of this task, without which nobody would get an answer
            return [unexpected(error)] * len(some)

    async def _settle(self, some: Sequence[Sent], outcomes: Sequence[str | Error]) -> None:
        async with self._changed:
            self._refused += settled(some, outcomes)
            self._under_way = 0
            self._changed.notify_all()


def _left() -> ClosedError:
    """The error for submissions that were on their way when the client was closed."""
    return ClosedError(
        "the client was closed before the server said whether it has accepted this; look with:"
        " forebay ps"
    )
