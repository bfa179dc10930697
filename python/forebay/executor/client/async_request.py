"""A request that was submitted, for the tasks of an event loop."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from forebay._failures import failure_error
from forebay.errors import (
    BrokenError,
    ConfigError,
    DeadlineError,
    Error,
    LimitError,
    RemoteError,
)
from forebay.executor.client.follow import Progress, RequestFollowing, async_items, item_of
from forebay.executor.client.items import AsyncItems, ItemsFollowing
from forebay.executor.client.links import not_accepted, ran_out
from forebay.executor.client.result_file import file_of
from forebay.executor.wire.frames import message
from forebay.executor.wire.parts import decode_result

if TYPE_CHECKING:
    from forebay.executor.client.async_client import AsyncClient

__all__ = ["AsyncRequest"]


class AsyncRequest:
    """One request of a server; made by `AsyncClient.submit` and `AsyncClient.get`.

    What `Request` is for threads, with methods to await.

    Loop affinity: that of its client.

    Attributes:
        name: of the request's definition; empty where it was found by its id.
    """

    __slots__ = (
        "_accepting",
        "_client",
        "_error",
        "_id",
        "_item_type",
        "_status",
        "_type",
        "_value",
        "name",
    )

    def __init__(
        self,
        client: AsyncClient,
        id_: str | asyncio.Task[str],
        name: str,
        type_: Any,
        item_type: Any = Any,
    ) -> None:
        self._client = client
        self._id: str | None = None
        self._accepting: asyncio.Task[str] | None = None
        if isinstance(id_, str):
            self._id = id_
        else:
            self._accepting = id_
        self._type = type_
        self._item_type = item_type
        self._status: str | None = None
        self._value: Any = None
        self._error: Error | None = None
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
        if self._accepting is not None:
            try:
                self._id = await self._client._accepting.id_of(self._accepting, timeout)
            except TimeoutError as error:
                if isinstance(error, Error):
                    raise
                raise not_accepted(self.name, timeout) from None
            self._accepting = None
        return self.id

    async def result(self, timeout: float | None = None) -> Any:
        """Await its end, and return what the function returned; errors as of `Request.result`.

        Cancellation: the request goes on, and may be awaited again.
        """
        await self._wait(timeout)
        if self._error is not None:
            raise self._error
        return self._value

    async def watch(self, timeout: float | None = None) -> Any:
        """Await as `result` does, while its output and its progress are shown; see `Request.watch`.

        Cancellation: the request goes on, and may be awaited again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        if self._status is None:
            from forebay.executor.client.async_watch import watch

            await watch(self, timeout)
        return await self.result(None if until is None else max(0.0, until - time.monotonic()))

    async def exception(self, timeout: float | None = None) -> Error | None:
        """Await its end, and return what `result` would raise; None where it succeeded."""
        await self._wait(timeout)
        return self._error

    async def status(self) -> str:
        """What it is now: queued, running, succeeded, failed, cancelled or dead."""
        if self._status is not None:
            return self._status
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
        self._status, self._error, self._value = None, None, None

    async def logs(self, *, follow: bool = True, offset: int = 0) -> AsyncIterator[str]:
        """What it wrote to stdout and stderr, as it is written; arguments as of `Request.logs`.

        Cancellation: safe; the stream ends and nothing else.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        args = [await self.accepted(), offset, follow]
        async for item, peer in async_items(self._client, "logs", lambda: tuple(args)):
            start, piece = item_of(item, peer)
            args[1] = start + len(piece)
            if text := decoder.decode(bytes(piece)):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def items(self, after: int = 0, *, epoch: int | None = None, follow: bool = True) -> AsyncItems:
        """What it yields, to be read by `async for`; arguments and errors as of `Request.items`.

        Cancellation: safe; an item that has come is given by the next turn.
        """
        wanted = (self.name, self._item_type, after, epoch)
        return AsyncItems(self, ItemsFollowing(*wanted, follow=follow))

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Changes of its status, its progress and the reasons why it waits, until it ends.

        The first ones tell how it stands. It goes on behind the last one when the server comes
        back; `{"event": "gap", "first", "last"}` says that some were missed.
        """
        following = RequestFollowing(await self.accepted())
        async for item, peer in async_items(self._client, "events", lambda: following.args):
            yield following.take(item, peer)

    async def progress(self) -> AsyncIterator[Progress]:
        """What `ctx.progress` told, as it is told, until the request ends."""
        async for event in self.events():
            if event.get("event") == "progress":
                yield Progress.of(event)

    def __repr__(self) -> str:
        id_ = self._id or "not yet known"
        return f"<AsyncRequest {id_} {self.name} {self._status or ''}".rstrip() + ">"

    def _blocking(self) -> AbstractContextManager[None]:
        """Entered while an item of it is waited for."""
        return nullcontext()

    def _repr_html_(self) -> str:
        """What a notebook shows: what this program knows, since a server is asked by `await`."""
        from forebay.executor.client.shown import request_table

        return request_table({"id": self._id, "name": self.name, "status": self._status})

    async def _await_acceptance(self, timeout: float | None) -> bool:
        """Whether it was accepted; else why it was not is its end."""
        try:
            await self.accepted(timeout)
        except Error as refused:
            if self._accepting is None or not self._accepting.done():
                raise
            maybe = isinstance(refused, BrokenError) and refused.delivered != "no"
            self._error, self._status = refused, "unknown" if maybe else "refused"
            return False
        return True

    async def _wait(self, timeout: float | None) -> None:
        if self._status is not None:
            return
        until = None if timeout is None else time.monotonic() + timeout
        try:
            if self._id is None and not await self._await_acceptance(timeout):
                return
            frame = message("wait", (self.id,))
            _, _, status, payload = await self._client._calls.send(frame, until, repeatable=True)
            if type(payload) is list:
                path, size = payload
                payload = await asyncio.to_thread(file_of, path, size, self.id)
                if payload is not None:
                    self._client._links.tell_taken(self.id)
            if payload is None:
                frame = message("wait", (self.id, True))
                try:
                    _, _, status, payload = await self._client._calls.send(
                        frame, until, repeatable=True
                    )
                except (ConfigError, LimitError) as gone:
                    self._error, self._status = gone, status
                    return
        except (DeadlineError, BrokenError) as error:
            if not ran_out(error, until):
                raise
            raise DeadlineError(
                f"request {self._id or self.name} has not ended within {timeout:g} s; it goes on:"
                " await it again, or cancel() it",
                timeout=timeout,
            ) from None
        if status == "succeeded":
            try:
                self._value = decode_result(payload, self._type, self.name)
            except RemoteError as error:
                self._error = error
        else:
            self._error = failure_error(self.id, payload)
        self._status = status
