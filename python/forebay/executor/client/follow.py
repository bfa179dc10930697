"""What a server tells while it works: the log of a request, its progress, the events of all."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, ProtocolError
from forebay.executor.client.questions import ids_of
from forebay.executor.wire.frames import value_of

if TYPE_CHECKING:
    from forebay.executor.client.async_client import AsyncClient
    from forebay.executor.client.client import Client

__all__ = [
    "Following",
    "Progress",
    "RequestFollowing",
    "again",
    "async_items",
    "events",
    "feed",
    "item_of",
    "log_bytes",
    "text_of",
]

Event = dict[str, Any]
"""Of the server's feed, with its fields by name."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is.

    Attributes:
        done: so much of the work.
        total: all of it, or None where nobody knows.
        message: what it does now.
        unit: of both numbers.
    """

    done: float
    total: float | None
    message: str
    unit: str

    @classmethod
    def of(cls, event: dict[str, Any]) -> Progress:
        """The progress that an event tells."""
        return cls(
            event.get("done") or 0,
            event.get("total"),
            event.get("message") or "",
            event.get("unit") or "",
        )


def item_of(item: Any, peer: str) -> Any:
    """An item of a stream; raises what it was refused with."""
    if type(item) is list and len(item) == 2 and item[0] == 1 and isinstance(item[1], dict):
        return value_of(item, peer)
    return item


def log_bytes(client: Client, id_: str, *, follow: bool, offset: int = 0) -> Iterator[bytes]:
    """The log of a request; goes on where it was when the server comes back."""
    while True:
        channel = client._channel()
        try:
            with channel.stream("logs", (id_, offset, follow)) as stream:
                for item in stream:
                    offset, piece = item_of(item, channel.name)
                    piece = bytes(piece)
                    yield piece
                    offset += len(piece)
            return
        except ProtocolError:
            raise
        except BrokenError as error:
            again(client, channel, error)


def text_of(pieces: Iterator[bytes]) -> Iterator[str]:
    """The same as text; a character that is cut between two pieces comes with the second."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        if text := decoder.decode(piece):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


class RequestFollowing:
    """Which request's events a client follows, and how far it is."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self._cursor: int | None = None

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of the call that begins, or goes on behind the last event."""
        return (self._id,) if self._cursor is None else (self._id, self._cursor)

    def take(self, item: Any, peer: str) -> Event:
        """The event that is an item of the stream; raises what that was refused with."""
        event: Event = item_of(item, peer)
        # A gap has none: how the request stands comes behind it.
        self._cursor = event.get("seq", self._cursor)
        return event


def events(client: Client, id_: str) -> Iterator[Event]:
    """The events of a request until it ends; the first ones tell how it stands."""
    following = RequestFollowing(id_)
    while True:
        channel = client._channel()
        try:
            with channel.stream("events", following.args) as stream:
                for item in stream:
                    yield following.take(item, channel.name)
            return
        except ProtocolError:
            raise
        except BrokenError as error:
            again(client, channel, error)


class Following:
    """What a reader of the server's events wants, and how far it is.

    Attributes:
        cursor: the number of the last event that it had; None: it has none.
    """

    def __init__(
        self,
        names: str | Sequence[str] | None,
        ids: str | Sequence[str] | None,
        events: str | Sequence[str] | None,
        submitter: str | None,
        cursor: int | None,
    ) -> None:
        given = {"names": names, "ids": ids, "events": events}
        self._wanted: dict[str, Any] = {
            name: ids_of(value) for name, value in given.items() if value is not None
        }
        if submitter is not None:
            self._wanted["submitter"] = submitter
        self.cursor = cursor

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments of the call that begins, or goes on where it was."""
        return self._wanted, self.cursor

    def take(self, item: Any, peer: str) -> Iterator[Event]:
        """The events of an item of the stream.

        Raises:
            the error of a refusal. ProtocolError: it is no such item.
        """
        if type(item) is not list or not item or not isinstance(item[0], dict):
            value_of(item, peer)
            raise ProtocolError(f"{peer} sent {item!r:.80}, which are no events", peer=peer)
        for event in item:
            # A gap has none of its own: it ends with the last number that was missed.
            self.cursor = event["last"] if event["event"] == "gap" else event["seq"]
            if event["event"] != "begin":
                yield event


def feed(client: Client, following: Following) -> Generator[Event, None, None]:
    """The events of a server; begun when this returns, at a number that is known."""
    events = _feed(client, following)
    next(events)
    return events


def _feed(client: Client, following: Following) -> Generator[Event, None, None]:
    has_begun = False
    while True:
        channel = client._channel()
        try:
            with channel.stream("feed", following.args) as stream:
                if not has_begun and following.cursor is not None:
                    has_begun = True
                    yield {}
                for item in stream:
                    told = [*following.take(item, channel.name)]
                    # Without a cursor the first item says its number, behind which this goes on
                    # also where the server ends before anything has happened.
                    if not has_begun:
                        has_begun = True
                        yield {}
                    yield from told
            return
        except ProtocolError:
            raise
        except BrokenError as error:
            again(client, channel, error)


async def async_items(client: AsyncClient, method: str, args: Any) -> AsyncIterator[Any]:
    """The items of a stream for a loop, each with the name of the server that sent it.

    Args:
        client: of the loop.
        method: that streams.
        args: called for the arguments each time it begins: the first time, and when the server
            has come back.
    """
    while True:
        channel = await client._calls.channel()
        try:
            async with channel.on_loop.stream(method, args()) as stream:
                async for item in stream:
                    yield item, channel.name
            return
        except ProtocolError:
            raise
        except BrokenError:
            if not channel.is_spent:
                raise
            await client._calls.again(channel)


def again(client: Client, channel: Any, error: BrokenError) -> None:
    """Have another connection, or raise what broke this one."""
    if not channel.is_spent:
        raise error  # it was no matter of the connection
    client._links.again(channel)
