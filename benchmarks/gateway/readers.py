"""Readers of server-sent events, all in one thread, each with the same streams."""

from __future__ import annotations

import http.client
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from benchmarks.gateway.address import Address

LOOK_S = 0.05
PIECE_BYTES = 1 << 16
COME_S = 60.0


@dataclass(slots=True)
class Stream:
    """One answer that does not end.

    Attributes:
        connection: it comes over.
        path: it was asked for by.
        events: whole ones so far.
        tail: of the last piece, in which an event may end that began before it.
        ended: whether the gateway has closed it.
    """

    connection: http.client.HTTPConnection
    path: str
    events: int = 0
    tail: bytes = b""
    ended: bool = False

    def take(self, piece: bytes) -> None:
        """Count the events of a piece; each has one line of data."""
        lines = (self.tail + piece).split(b"\n")
        self.tail = lines.pop()
        self.events += sum(line.startswith(b"data:") for line in lines)


class Readers:
    """So many readers, which read what comes until the block ends.

    Args:
        paths: of the streams of each reader, with the gateway and the token that a stream is opened
            with: one token may have 100 streams.
        count: of readers.
    """

    def __init__(self, paths: Mapping[str, Address], count: int) -> None:
        self._of_each = len(paths)
        self._selector = selectors.DefaultSelector()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._streams = [
            _opened(address, path) for _ in range(count) for path, address in paths.items()
        ]
        for stream in self._streams:
            self._selector.register(_socket(stream), selectors.EVENT_READ, stream)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        for stream in self._streams:
            stream.connection.close()
        self._selector.close()

    def served(self) -> int:
        """Readers whose streams are all open and have had an event; waits for that a while."""
        deadline = time.monotonic() + COME_S
        asked = len(self._streams) // self._of_each
        while (count := self._served()) < asked and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return count

    def _served(self) -> int:
        well = [stream.events > 0 and not stream.ended for stream in self._streams]
        streams = range(self._of_each)
        return sum(map(all, zip(*(well[one :: self._of_each] for one in streams), strict=True)))

    def _read(self) -> None:
        while not self._ending.is_set():
            for key, _ in self._selector.select(LOOK_S):
                stream: Stream = key.data
                piece = _socket(stream).recv(PIECE_BYTES)
                stream.take(piece)
                if not piece:
                    stream.ended = True
                    self._selector.unregister(key.fileobj)


def _opened(address: Address, path: str) -> Stream:
    """Ask for a stream; its head comes later, among its events."""
    connection = address.connect()
    connection.request("GET", path, headers=address.headers | {"Accept": "text/event-stream"})
    return Stream(connection, path)


def _socket(stream: Stream) -> socket.socket:
    found = stream.connection.sock
    assert isinstance(found, socket.socket)  # it is connected
    return found
