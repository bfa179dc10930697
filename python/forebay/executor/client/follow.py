"""What a request tells while it runs: its log, its progress, the reasons why it waits."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.errors import BrokenError, ProtocolError
from forebay.executor.wire.frames import value_of

if TYPE_CHECKING:
    from forebay.executor.client.client import Client

__all__ = ["Progress", "events", "item_of", "log_bytes", "text_of"]


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
            _again(client, channel, error)


def text_of(pieces: Iterator[bytes]) -> Iterator[str]:
    """The same as text; a character that is cut between two pieces comes with the second."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        if text := decoder.decode(piece):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text


def events(client: Client, id_: str) -> Iterator[dict[str, Any]]:
    """The events of a request until it ends; the first ones tell how it stands."""
    while True:
        channel = client._channel()
        try:
            with channel.stream("events", (id_,)) as stream:
                for item in stream:
                    yield item_of(item, channel.name)
            return
        except ProtocolError:
            raise
        except BrokenError as error:
            _again(client, channel, error)


def _again(client: Client, channel: Any, error: BrokenError) -> None:
    """Have another connection, or raise what broke this one."""
    if not channel.broken:
        raise error  # it was no matter of the connection
    client._links.again(channel)
