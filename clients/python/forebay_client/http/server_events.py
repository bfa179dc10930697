"""Server-sent events out of bytes (WHATWG HTML, 9.2.6), without I/O."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from forebay_client.errors import ProtocolError

__all__ = ["EventReader", "ServerEvent"]


class ServerEvent(NamedTuple):
    """One event.

    Attributes:
        id: behind which a later stream goes on; empty where none came yet.
        kind: "message" where none is named.
        data: its lines.
    """

    id: str
    kind: str
    data: str


class EventReader:
    """Takes pieces of a stream and gives the events that have ended in them.

    Args:
        peer: for messages.
        chars_max: of one event.

    Cost: in proportion to the text, also where one line comes in a thousand pieces.
    """

    def __init__(self, peer: str, chars_max: int) -> None:
        self._peer = peer
        self._chars_max = chars_max
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._rest: list[str] = []
        """Of the line that has not ended."""
        self._rest_chars = 0
        self._after_return = False
        self._id = ""
        self._kind = ""
        self._data: list[str] = []
        self._chars = 0

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that end in a piece.

        Raises:
            ProtocolError: an event has no end for very long.
        """
        text = self._decoder.decode(piece)
        if self._after_return and text.startswith("\n"):
            text = text[1:]  # of a line end that the pieces cut
        if text:
            self._after_return = text.endswith("\r")
        *lines, rest = _lines(text)
        if lines:
            lines[0] = "".join([*self._rest, lines[0]])
            self._rest, self._rest_chars = [], 0
        self._rest.append(rest)
        self._rest_chars += len(rest)
        events = [event for line in lines if (event := self._take(line)) is not None]
        if self._chars + self._rest_chars > self._chars_max:
            raise ProtocolError(
                f"{self._peer} sent an event of more than {self._chars_max} characters",
                peer=self._peer,
            )
        return events

    def _take(self, line: str) -> ServerEvent | None:
        if not line:
            return self._end()
        self._chars += len(line)
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None  # a comment has no name, and other names mean nothing here

    def _end(self) -> ServerEvent | None:
        kind, data = self._kind or "message", self._data
        self._kind, self._data, self._chars = "", [], 0
        return ServerEvent(self._id, kind, "\n".join(data)) if data else None


def _lines(text: str) -> list[str]:
    """The lines of a text and what follows the last line end; `splitlines` knows too many ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
