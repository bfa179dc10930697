"""Conversations of a client and a server as bytes: written to a file, read from it, compared.

A transcript is text, a line for each piece of a direction: `>` is from the client, `<` from the
server. A piece is the preface of a connection, or one frame; it is hex, or from `LONG` bytes on
base64 of its zlib form behind a `~`. Lines that begin with `#` say to a reader what the next piece
is. Before them stand the directory in which it was recorded (`root`), what the user of the client
saw (`seen`, JSON), and the files whose path the server named (`file`).
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from msgspec import msgpack

PREFACE_BYTES = 32
CALL, REPLY, FAILURE, ITEM = 1, 2, 3, 12
ONE_WAY = 2
LONG = 2048

_HEADER = struct.Struct("<IBBHQII")
_ID_AT = 8
"""Of the call's number in a header."""


@dataclass(frozen=True)
class Piece:
    """A preface or a frame, from the client or from the server."""

    client: bool
    raw: bytes

    @property
    def is_preface(self) -> bool:
        return self.raw.startswith(b"FBAY")

    @property
    def kind(self) -> int:
        return 0 if self.is_preface else self.raw[4]

    @property
    def is_one_way(self) -> bool:
        return bool(self.raw[5] & ONE_WAY)

    @property
    def call(self) -> int:
        """The number of the call that it is about."""
        return int(_HEADER.unpack_from(self.raw)[4])

    @property
    def segments(self) -> list[bytes]:
        lengths, at = self._layout()
        found = []
        for length in lengths:
            found.append(self.raw[at : at + length])
            at += length
        return found

    @property
    def head(self) -> Any:
        """What the head says, decoded; None: there is none."""
        head = self._head_bytes()
        return msgpack.decode(head) if head else None

    def about(self, call: int) -> Piece:
        """The same about a call of another number."""
        raw = bytearray(self.raw)
        raw[_ID_AT : _ID_AT + 8] = struct.pack("<Q", call)
        return Piece(self.client, bytes(raw))

    def replaced(self, texts: dict[str, str]) -> Piece:
        """The same with other texts of the same lengths."""
        raw = self.raw
        for old, new in texts.items():
            assert len(old) == len(new)
            raw = raw.replace(old.encode(), new.encode())
        return Piece(self.client, raw)

    def described(self) -> str:
        """For who reads the transcript."""
        if self.is_preface:
            return "preface"
        if self.kind in (CALL, REPLY, ITEM):
            name = {CALL: "call", REPLY: "reply", ITEM: "item"}[self.kind]
            told = f"{name} {self.call}: {self.head!r:.160}"
            return told.encode("ascii", "replace").decode()
        return f"frame of kind {self.kind}, call {self.call}"

    def _head_bytes(self) -> bytes:
        _, at = self._layout()
        size = _HEADER.unpack_from(self.raw)[0]
        return self.raw[at - size : at]

    def _layout(self) -> tuple[list[int], int]:
        """The lengths of the segments, and where the first one begins."""
        head, _, _, count, *_ = _HEADER.unpack_from(self.raw)
        lengths = struct.unpack_from(f"<{count}Q", self.raw, _HEADER.size)
        return list(lengths), _HEADER.size + 8 * count + head


class Splitter:
    """The pieces of one direction, of its bytes as they come."""

    def __init__(self, *, client: bool) -> None:
        self._client = client
        self._rest = b""
        self._begun = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that are whole now."""
        self._rest += data
        while (size := self._next()) is not None and len(self._rest) >= size:
            raw, self._rest = self._rest[:size], self._rest[size:]
            self._begun = True
            yield Piece(self._client, raw)

    def _next(self) -> int | None:
        if not self._begun:
            return PREFACE_BYTES
        if len(self._rest) < _HEADER.size:
            return None
        head, _, _, count, *_ = _HEADER.unpack_from(self._rest)
        if len(self._rest) < _HEADER.size + 8 * count:
            return None
        lengths = struct.unpack_from(f"<{count}Q", self._rest, _HEADER.size)
        return int(_HEADER.size + 8 * count + head + sum(lengths))


@dataclass
class Transcript:
    """One conversation.

    Attributes:
        root: the directory of the application and of the server's state when it was recorded.
        seen: what the scene returned.
        pieces: in the order in which they passed.
        files: those that the server named, by their path.
    """

    root: str
    seen: Any = None
    pieces: list[Piece] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        lines = [f"root {self.root}", f"seen {json.dumps(self.seen)}"]
        lines += [f"file {path} {_packed(data)}" for path, data in self.files.items()]
        for piece in self.pieces:
            lines.append(f"# {piece.described()}")
            lines.append(f"{'>' if piece.client else '<'} {_packed(piece.raw)}")
        path.write_text("\n".join(lines) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        made = cls("")
        for line in path.read_text().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "root":
                made.root = rest
            elif kind == "seen":
                made.seen = json.loads(rest)
            elif kind == "file":
                name, _, data = rest.partition(" ")
                made.files[name] = _unpacked(data)
            elif kind in "<>":
                made.pieces.append(Piece(kind == ">", _unpacked(rest)))
        return made


def _packed(data: bytes) -> str:
    if len(data) < LONG:
        return data.hex()
    return "~" + base64.b64encode(zlib.compress(data, 9)).decode()


def _unpacked(text: str) -> bytes:
    if text.startswith("~"):
        return zlib.decompress(base64.b64decode(text[1:]))
    return bytes.fromhex(text)
