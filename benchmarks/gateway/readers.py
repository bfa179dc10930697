"""Readers of server-sent events, all in one thread: two streams each, of the feed and of a log."""

from __future__ import annotations

import http.client
import selectors
import socket
import threading
import time
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
    """So many readers of one request and its name, which read what comes until the block ends.

    Args:
        feed: the gateway, with the token of the streams of the feed.
        log: the same with the token of those of logs: a token may have 100 streams.
        count: of readers.
        name: of the request, by which the server filters the feed.
        id_: of the request.
    """

    def __init__(self, feed: Address, log: Address, count: int, name: str, id_: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._read)
        paths = {f"/v1/events?names={name}&cursor=0": feed, f"/v1/requests/{id_}/logs": log}
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
        """Readers both of whose streams are open and have had an event; waits for that a while."""
        deadline = time.monotonic() + COME_S
        while (count := self._served()) < len(self._streams) // 2 and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return count

    def _served(self) -> int:
        well = [stream.events > 0 and not stream.ended for stream in self._streams]
        return sum(map(all, zip(well[::2], well[1::2], strict=True)))

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
