"""The gateway's connection to its server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from forebay.errors import BrokenError, ClosedError, DeadlineError, Error, ProtocolError
from forebay.executor._internal import (
    ONCE,
    AsyncLinks,
    Links,
    Message,
    item_of,
    message,
    returned,
    submission,
    value_of,
)
from forebay.gateway.asgi.ids import is_beginning, is_id
from forebay.gateway.http.limits import ANSWER_S
from forebay.gateway.problems import Problem

__all__ = ["ServerLink"]


class ServerLink:
    """Calls of the server; each raises the error that a refusal stands for.

    Where the server goes away, a call waits until it is back, at most `ANSWER_S`; one that may
    have been heard is sent again only where that does no harm.

    Loop affinity: the gateway's.
    """

    def __init__(self, url: str) -> None:
        self._links = Links(url, None, start=False, timeout=ANSWER_S, on_start=None)
        self._calls = AsyncLinks(self._links)
        self._corked: object = None
        """The connection whose calls of one turn are written together."""

    async def ask(self, method: str, *args: Any, by: str | None = None) -> Any:
        """Call a method that is not on the way of a request; `by`: for the holder of this token."""
        frame = message(method, args, None if by is None else {"by": by})
        return returned(await self._answered(frame, repeatable=method not in ONCE))

    async def submit(
        self,
        name: str,
        arguments: bytes,
        options: dict[str, Any],
        *,
        by: str,
        repeatable: bool,
    ) -> str:
        """Submit a request; its id, once it is on disk.

        Args:
            name: of the request.
            arguments: in MessagePack.
            options: as they travel.
            by: the name of the token, which becomes the submitter.
            repeatable: whether they have an idempotency key.

        Cancellation: the request may be accepted nevertheless.
        """
        frame = submission("submit", name, arguments, options, None, by)
        channel = self._links.current
        if channel is not None:  # the way of nearly all: without the steps that find a server
            if channel is not self._corked:
                channel.on_loop.cork()  # submissions that come together are written together
                self._corked = channel
            try:
                answer = await channel.call_frame(frame, ANSWER_S)
            except BrokenError as error:
                may_repeat = repeatable or error.delivered == "no"
                if isinstance(error, ProtocolError) or not may_repeat:
                    raise
            except ClosedError:
                pass  # it was replaced before this was sent
            except DeadlineError:
                raise _unanswered() from None
            else:
                accepted: str = value_of(answer, channel.name)[1]
                return accepted
        id_: str = (await self._answered(frame, repeatable=repeatable))[1]
        return id_

    async def end_of(self, id_: str, seconds: float | None, *, whole: bool = False) -> Any:
        """Wait for the end of a request; its status, and its payload as it travels.

        Args:
            id_: the whole id.
            seconds: None: as long as it takes.
            whole: have the result itself, wherever it lies.

        Returns:
            `(status, payload)`, or None where it has not ended in time.

        Cancellation: safe.
        """
        frame = message("wait", (id_, True) if whole else (id_,))
        until = None if seconds is None else time.monotonic() + seconds
        try:
            answer = await self._calls.send(frame, until, repeatable=True)
        except DeadlineError:
            return None
        return answer[2], answer[3]

    async def resolve(self, text: str) -> str:
        """The id that a path names: an id, a unique beginning of one, or `@last`."""
        if text != "@last":
            if is_id(text):
                return text.lower()
            if not is_beginning(text):
                raise Problem(
                    404,
                    "unknown",
                    f"{text!r:.100} is no id, nor the beginning of one",
                    object="request",
                    value=text[:100],
                    next="list the requests with GET /v1/requests",
                )
        id_: str = await self.ask("resolve", text)
        return id_

    def taken(self, id_: str) -> None:
        """The file of a result was read: the server need not keep it for us."""
        self._links.tell_taken(id_)

    @asynccontextmanager
    async def stream(self, method: str, *args: Any) -> AsyncIterator[AsyncIterator[Any]]:
        """The items of a stream of the server."""
        channel = await self._calls.channel()
        if channel.is_spent:  # a stream on it may be the only one who has noticed
            channel = await self._calls.again(channel)
        async with channel.on_loop.stream(method, args) as items:

            async def checked() -> AsyncGenerator[Any, None]:
                async for item in items:
                    yield item_of(item, channel.name)

            async with contextlib.aclosing(checked()) as answers:
                yield answers

    async def _answered(self, frame: Message, *, repeatable: bool) -> list[Any]:
        until = time.monotonic() + ANSWER_S
        try:
            return await self._calls.send(frame, until, repeatable=repeatable)
        except DeadlineError:
            raise _unanswered() from None

    def close(self) -> None:
        """Close the connection; calls in flight end with ClosedError."""
        with contextlib.suppress(Error):
            self._links.close()


def _unanswered() -> BrokenError:
    return BrokenError(
        f"the server has not answered within {ANSWER_S:g} s; send it again, a submission with its"
        " Idempotency-Key"
    )
