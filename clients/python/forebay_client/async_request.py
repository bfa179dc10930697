"""A request that was submitted, for the tasks of an event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from forebay_client.calls import End
from forebay_client.errors import ConfigError, DeadlineError, Error
from forebay_client.items import AsyncItems, ItemsFollowing
from forebay_client.progress import Progress
from forebay_client.request import end_of_refusal

if TYPE_CHECKING:
    from forebay_client.async_client import AsyncClient
    from forebay_client.outbox import Sent

__all__ = ["AsyncRequest"]


class AsyncRequest:
    """One request of a server; made by `AsyncClient.submit` and `AsyncClient.get`.

    What `Request` is for threads, with methods to await.

    Loop affinity: that of its client.

    Attributes:
        name: of the request's definition; empty where it was found by its id.
    """

    __slots__ = ("_client", "_end", "_id", "_item_type", "_sent", "_type", "name")

    def __init__(
        self,
        client: AsyncClient,
        sent: Sent | None,
        id_: str | None,
        name: str,
        type_: Any,
        item_type: Any = Any,
    ) -> None:
        self._client = client
        self._sent = sent
        self._id = id_
        self._type = type_
        self._item_type = item_type
        self._end: End | None = None
        self.name = name

    @property
    def id(self) -> str:
        """Its id.

        Raises:
            ConfigError: it was sent by `submit_nowait`, and `accepted` was not awaited yet.
        """
        if self._id is None:
            raise ConfigError(
                f"request {self.name!r} has no id before it is accepted; await accepted() first"
            )
        return self._id

    async def accepted(self, timeout: float | None = None) -> str:
        """Wait until the request is on disk, and return its id; errors as of `Request.accepted`.

        Cancellation: safe; the submission goes on.
        """
        if self._id is None:
            assert self._sent is not None  # without one there is an id from the beginning
            self._id = await self._client.outbox.id_of(self._sent, timeout)
            self._sent = None
        return self._id

    async def result(self, timeout: float | None = None) -> Any:
        """Await its end, and return what the function returned; errors as of `Request.result`.

        Cancellation: the request goes on, and may be awaited again.
        """
        end = await self._wait(timeout)
        if end.error is not None:
            raise end.error
        return end.value

    async def exception(self, timeout: float | None = None) -> Error | None:
        """Await its end, and return what `result` would raise; None where it succeeded."""
        return (await self._wait(timeout)).error

    async def status(self) -> str:
        """What it is now: queued, running, succeeded, failed, cancelled or dead."""
        if self._end is not None:
            return self._end.status
        status: str = (await self._client.ask("status", await self.accepted()))["status"]
        return status

    async def show(self) -> dict[str, Any]:
        """Everything that the server knows about it."""
        known: dict[str, Any] = await self._client.ask("show", await self.accepted())
        return known

    async def why(self) -> dict[str, Any]:
        """Why it waits, is slow or died: the decisions with their numbers, and the next step."""
        told: dict[str, Any] = await self._client.ask("why", await self.accepted())
        return told

    async def cancel(self) -> str:
        """Cancel it; returns "now", "asked" (its code is being interrupted) or "ended"."""
        answer: str = await self._client.ask("cancel", await self.accepted())
        return answer

    async def retry(self) -> None:
        """Queue it again after it failed, was cancelled or was set aside."""
        await self._client.retry([await self.accepted()])
        self._end = None

    async def logs(self, *, follow: bool = True, offset: int = 0) -> AsyncGenerator[str, None]:
        """What it wrote to stdout and stderr, as it is written; arguments as of `Request.logs`.

        Cancellation: safe; the stream ends and nothing else.
        """
        calls, id_ = self._client.calls, await self.accepted()
        if follow:
            async with aclosing(self._client.stream(calls.follow_log(id_, offset))) as texts:
                async for text in texts:
                    yield text
        elif text := await self._client.perform(calls.log(id_, offset)):
            yield text

    def items(self, after: int = 0, *, epoch: int | None = None, follow: bool = True) -> AsyncItems:
        """What it yields, to be read by `async for`; arguments and errors as of `Request.items`.

        Cancellation: safe; an item that has come is given by the next turn.
        """
        wanted = (self.name, self._item_type, after, epoch)
        return AsyncItems(self, ItemsFollowing(*wanted, follow=follow))

    async def events(self) -> AsyncGenerator[dict[str, Any], None]:
        """What happens to it, until it has ended; items as of `Request.events`."""
        id_ = await self.accepted()
        async with aclosing(self._client.stream(self._client.calls.events(id_))) as events:
            async for event in events:
                yield event

    async def progress(self) -> AsyncGenerator[Progress, None]:
        """What `ctx.progress` told, as it is told, until the request ends."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if event.get("event") == "progress":
                    yield Progress.of(event)

    def __repr__(self) -> str:
        status = "" if self._end is None else self._end.status
        return f"<AsyncRequest {self._id or 'not yet known'} {self.name} {status}".rstrip() + ">"

    async def _wait(self, timeout: float | None) -> End:
        if self._end is None:
            try:
                id_ = await self.accepted(timeout)
            except DeadlineError:
                raise
            except Error as refused:
                self._end = end_of_refusal(refused)
            else:
                procedure = self._client.calls.end(id_, self.name, self._type, timeout)
                self._end = await self._client.perform(procedure)
        return self._end
