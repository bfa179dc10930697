"""What a generator yields, as the program that reads it gets it."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

from forebay.errors import BrokenError, ConfigError, ProtocolError, StaleError
from forebay.executor.client.follow import again, async_items, item_of
from forebay.executor.wire.parts import decode_result

if TYPE_CHECKING:
    from forebay.executor.client.async_request import AsyncRequest
    from forebay.executor.client.client import Client
    from forebay.executor.client.request import Request

__all__ = ["AsyncItems", "Items", "ItemsFollowing"]


class ItemsFollowing:
    """Which items of a request a reader wants, and how far it is; without I/O.

    Args:
        name: of the request, for messages.
        type_: of an item; None: the request gives none.
        after: the number behind which to begin.
        epoch: whose number that is; None: of the one that there is, or will be.
        follow: whether to go on until the request ends.

    Attributes:
        id: of the request, once it is known.
        epoch: of the last item that was given; None before the first.
        number: of that item, or the one behind which the reader begins.
        ready: numbers and bytes of items that have come, with their epoch.
    """

    __slots__ = ("_known", "_last", "_name", "_type", "epoch", "follow", "id", "number", "ready")

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
        self.id = ""
        self.follow = follow
        self.number = self._last = after
        self.epoch: int | None = None
        self.ready: deque[tuple[int, int, Any]] = deque()
        self._known = epoch
        self._name = name
        self._type = type_

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of the call that begins, or goes on behind the last item that came."""
        return self.id, self._known, self._last, self.follow

    def take(self, message: Any, peer: str) -> None:
        """Take in a message of the stream.

        Raises:
            StaleError: a new epoch has begun; what comes next is of it. The error of a refusal.
        """
        epoch, first, blobs = item_of(message, peer)
        before, last = self._known, self._last
        self._known = epoch
        if type(blobs) is not list:
            blobs = [blobs]
        self._last = first - 1 + len(blobs)
        self.ready.extend((epoch, first + at, blob) for at, blob in enumerate(blobs))
        if before not in (None, epoch):
            raise StaleError(
                f"request {self.id} has begun again: what came up to item {last} was of epoch"
                f" {before}, and epoch {epoch} begins with item 1; forget those items and go on"
                " with the same iterator"
            )

    def give(self) -> Any:
        """The next item that has come; raises RemoteError if it is not what is annotated."""
        self.epoch, self.number, blob = self.ready.popleft()
        return decode_result(blob, self._type, self._name)


class Items:
    """What a request yields, in its order; made by `Request.items`.

    An iterator and a context manager. Leaving early, by `close`, the end of the `with` block or the
    last reference, ends the reading and nothing else.

    Thread affinity: none, one thread at a time.
    """

    __slots__ = ("_following", "_messages", "_request")

    def __init__(self, request: Request, following: ItemsFollowing) -> None:
        self._request: Request | None = request
        self._following = following
        self._messages: Generator[tuple[Any, str], None, None] | None = None

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
            BrokenError: the server is gone and did not come back within the client's time, or the
                items cannot be read.

        Interrupting (Ctrl-C): the next turn goes on behind the last item.
        """
        following = self._following
        while not following.ready:
            message = self._next()
            if message is None:
                self._end()
                raise StopIteration
            following.take(*message)
        return following.give()

    def close(self) -> None:
        """End the reading. Idempotent."""
        self._request = None
        self._following.ready.clear()
        messages, self._messages = self._messages, None
        if messages is not None:
            messages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    def _next(self) -> tuple[Any, str] | None:
        request = self._request
        if request is None:
            return None
        if self._messages is None:
            self._messages = _messages(request, self._following)
        try:
            with request._blocking():
                return next(self._messages, None)
        except BaseException:
            self._messages = None  # it has ended with this, which is no end of the items
            raise

    def _end(self) -> None:
        """Raise why the request did not end well, once."""
        request, self._request = self._request, None
        if request is None or not self._following.follow:
            return
        error = request.exception()
        if error is not None:
            raise error


class AsyncItems:
    """What `Items` is for threads, to be iterated by `async for`; made by `AsyncRequest.items`.

    Loop affinity: that of its client. Cancellation: safe; an item that has come is not lost.
    """

    __slots__ = ("_following", "_messages", "_request")

    def __init__(self, request: AsyncRequest, following: ItemsFollowing) -> None:
        self._request: AsyncRequest | None = request
        self._following = following
        self._messages: Any = None

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
        following = self._following
        while not following.ready:
            message = await self._next()
            if message is None:
                await self._end()
                raise StopAsyncIteration
            following.take(*message)
        return following.give()

    async def aclose(self) -> None:
        """End the reading. Idempotent."""
        self._request = None
        self._following.ready.clear()
        messages, self._messages = self._messages, None
        if messages is not None:
            await messages.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *how: object) -> None:
        await self.aclose()

    async def _next(self) -> Any:
        request, following = self._request, self._following
        if request is None:
            return None
        if self._messages is None:
            following.id = await request.accepted()
            self._messages = async_items(request._client, "items", lambda: following.args)
        try:
            with request._blocking():
                return await anext(self._messages, None)
        except BaseException:
            self._messages = None  # it has ended with this, which is no end of the items
            raise

    async def _end(self) -> None:
        request, self._request = self._request, None
        if request is None or not self._following.follow:
            return
        error = await request.exception()
        if error is not None:
            raise error


def _messages(
    request: Request, following: ItemsFollowing
) -> Generator[tuple[Any, str], None, None]:
    """The messages of the stream, each with the name of the server that sent it."""
    following.id = request.id
    client: Client = request._client
    while True:
        channel = client._channel()
        try:
            with channel.stream("items", following.args) as stream:
                for message in stream:
                    yield message, channel.name
            return
        except ProtocolError:
            raise
        except BrokenError as error:
            again(client, channel, error)
