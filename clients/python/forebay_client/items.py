"""What a generator yields, as the program that reads it over HTTP gets it."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING, Any, Self

from forebay_client.errors import ConfigError, ProtocolError, StaleError
from forebay_client.problems import problem_error
from forebay_client.values.codec import decode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from forebay_client.async_request import AsyncRequest
    from forebay_client.request import Request

__all__ = ["AsyncItems", "Items", "ItemsFollowing"]

Event = dict[str, Any]


class ItemsFollowing:
    """Which items of a request a reader wants, and how far it is; without I/O.

    Args:
        name: of the request, for messages.
        type_: of an item; None: the request gives none.
        after: the number behind which to begin.
        epoch: whose number that is; None: of the one that there is, or will be.
        follow: whether to go on until the request ends.

    Attributes:
        epoch: of the last item that was given; None before the first.
        number: of that item, or the one behind which the reader begins.
        follow: as it was given.
        has_succeeded: whether the request ended well, as the end of its items says.
    """

    __slots__ = (
        "_known",
        "_last",
        "_name",
        "_type",
        "epoch",
        "follow",
        "has_succeeded",
        "number",
    )

    def __init__(
        self, name: str, type_: Any, after: int, epoch: int | None, *, follow: bool
    ) -> None:
        if type_ is None:
            raise ConfigError(
                f"request {name!r} is no generator and has no items; make it yield them, or read"
                " result()"
            )
        if after < 0:
            raise ConfigError(f"after is {after}; give the number of an item, or 0 for all of them")
        self.follow = follow
        self.number = self._last = after
        self.epoch: int | None = None
        self.has_succeeded = False
        self._known = epoch
        self._name = name
        self._type = type_

    @property
    def query(self) -> list[tuple[str, str]]:
        """Of the call that begins, or goes on behind the last item that was given."""
        told = [("form", "msgpack"), ("after", str(self._last))]
        if self._known is not None:
            told.append(("epoch", str(self._known)))
        return told if self.follow else [*told, ("follow", "false")]

    def take(self, event: Event) -> bool:
        """Take in an event of the stream; whether it is an item, to be given.

        Raises:
            StaleError: a new epoch has begun; what comes next is of it. The error of a refusal.
        """
        kind: str = event["event"]
        match kind:
            case "epoch":
                self._begin(event["epoch"])
            case "status":
                self.has_succeeded = event["status"] == "succeeded"
            case "refused":
                raise problem_error(event)
        return kind == "item"

    def give(self, event: Event) -> Any:
        """The item of an event.

        Raises:
            RemoteError: it is not what is annotated. ProtocolError: it cannot be read.
        """
        self.epoch = self._known = event["epoch"]
        self.number = self._last = event["number"]
        what = f"request {self._name or 'of another program'}"
        try:
            blob = binascii.a2b_base64(event["msgpack"])
        except (KeyError, TypeError, ValueError):
            raise ProtocolError(
                f"item {self.number} of {what} came without its MessagePack; see whether the URL is"
                " that of a gateway"
            ) from None
        return decode(blob, self._type, what)

    def _begin(self, epoch: int) -> None:
        before, last = self._known, self._last
        self._known = epoch
        if before in (None, epoch):
            return
        self._last = 0
        raise StaleError(
            f"request {self._name or 'of another program'} has begun again: what came up to item"
            f" {last} was of epoch {before}, and epoch {epoch} begins with item 1; forget those"
            " items and go on with the same iterator"
        )


class Items:
    """What a request yields, in its order; made by `Request.items`.

    An iterator and a context manager. Leaving early, by `close`, the end of the `with` block or the
    last reference, ends the reading and nothing else.

    Thread affinity: none, one thread at a time.
    """

    __slots__ = ("_events", "_following", "_request")

    def __init__(self, request: Request, following: ItemsFollowing) -> None:
        self._request: Request | None = request
        self._following = following
        self._events: Generator[Event, None, None] | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch of the last item that was given; None before the first."""
        return self._following.epoch

    @property
    def number(self) -> int:
        """The number of the last item that was given, from 1; before that, what `after` was."""
        return self._following.number

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Wait for the next item.

        Raises:
            StopIteration: the generator has ended well, and all its items were given.
            StaleError: the request has begun again; going on reads the new epoch from item 1.
            What `Request.result` raises, after the last item of a request that did not end well.
            BrokenError: the gateway is gone and did not come back within the client's time, or the
                items cannot be read; going on tries again behind the last item.
        """
        try:
            while (event := self._next()) is not None:
                if self._following.take(event):
                    return self._following.give(event)
        except StaleError:
            raise
        except BaseException:
            self._drop()  # what it ended in may have been this very item
            raise
        self._end()
        raise StopIteration

    def close(self) -> None:
        """End the reading. Idempotent."""
        self._request = None
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def _next(self) -> Event | None:
        request = self._request
        if request is None:
            return None
        if self._events is None:
            client = request._client
            self._events = client.stream(client.calls.items(request.id, self._following.query))
        return next(self._events, None)

    def _drop(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def _end(self) -> None:
        """Raise why the request did not end well, once."""
        request, self._request = self._request, None
        following = self._following
        if request is None or not following.follow or following.has_succeeded:
            return
        error = request.exception()
        if error is not None:
            raise error


class AsyncItems:
    """What `Items` is for threads, to be iterated by `async for`; made by `AsyncRequest.items`.

    Loop affinity: that of its client. Cancellation: safe; an item that has come is not lost.
    """

    __slots__ = ("_events", "_following", "_request")

    def __init__(self, request: AsyncRequest, following: ItemsFollowing) -> None:
        self._request: AsyncRequest | None = request
        self._following = following
        self._events: AsyncGenerator[Event, None] | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch of the last item that was given; None before the first."""
        return self._following.epoch

    @property
    def number(self) -> int:
        """The number of the last item that was given, from 1; before that, what `after` was."""
        return self._following.number

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Await the next item; errors as of `Items`, with StopAsyncIteration at the end."""
        while (event := await self._next()) is not None:
            if self._following.take(event):
                return self._following.give(event)
        await self._end()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the reading. Idempotent."""
        self._request = None
        events, self._events = self._events, None
        if events is not None:
            await events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *how: object) -> None:
        await self.aclose()

    async def _next(self) -> Event | None:
        request = self._request
        if request is None:
            return None
        if self._events is None:
            client, id_ = request._client, await request.accepted()
            self._events = client.stream(client.calls.items(id_, self._following.query))
        try:
            return await anext(self._events, None)
        except BaseException:
            self._events = None  # it has ended with this; the next turn begins another one
            raise

    async def _end(self) -> None:
        request, self._request = self._request, None
        following = self._following
        if request is None or not following.follow or following.has_succeeded:
            return
        error = await request.exception()
        if error is not None:
            raise error
