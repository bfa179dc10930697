"""Connections of a worker to the server's socket for clients, carried over the link.

A channel is a number, which the worker's side gives. Its bytes come in order; no bytes mean its
end, which either side may say. Each side tells how many bytes its socket has taken, and the other
one sends no more than `WINDOW_BYTES` beyond that.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Tunnel"]

READ_BYTES: Final = 1 << 16

WINDOW_BYTES: Final = 1 << 20
"""Of a channel on the way, in each direction."""

Send = Callable[[int, bytes], None]
"""Sends bytes of a channel over the link."""

Credit = Callable[[int, int], None]
"""Tells the other side how many bytes of a channel were taken."""


class Tunnel:
    """The channels at one end of a link. One thread uses it.

    Args:
        path: where it listens for the worker, or what it connects channels of the other side to.
        listens: which of both.
        send: to the other side.
        credit: to the other side.
    """

    def __init__(self, path: str, *, listens: bool, send: Send, credit: Credit) -> None:
        self._path = path
        self._send = send
        self._credit = credit
        self._listener: socket.socket | None = None
        self._next = 1
        self._channels: dict[int, _Channel] = {}
        if listens:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.setblocking(False)
            self._listener.bind(path)
            os.chmod(path, 0o600)
            self._listener.listen(16)

    def events(self) -> dict[int, int]:
        """What to poll its descriptors for."""
        wanted = {} if self._listener is None else {self._listener.fileno(): select.POLLIN}
        for channel in self._channels.values():
            if channel.events:
                wanted[channel.fileno()] = channel.events
        return wanted

    def advance(self, ready: dict[int, int]) -> None:
        """Carry what has come; `ready` may be of before the last `take`."""
        for number, channel in list(self._channels.items()):
            events = ready.get(channel.fileno(), 0)
            if events:
                self._write(number, channel)
            if events & ~select.POLLOUT and number in self._channels:
                self._read(number, channel)
        if self._listener is not None and self._listener.fileno() in ready:
            with contextlib.suppress(OSError):
                self._channels[self._next] = _Channel(self._listener.accept()[0])
                self._next += 1

    def take(self, number: int, data: bytes) -> None:
        """Bytes of the other side; none: the channel has ended there."""
        channel = self._channels.get(number)
        if channel is None and data and self._listener is None:
            channel = self._connected(number)
        if channel is None:
            return
        if data:
            channel.pending.append(memoryview(data))
        else:
            channel.is_ending = True
        self._write(number, channel)

    def take_credit(self, number: int, count: int) -> None:
        """The other side has taken so many bytes more of a channel."""
        channel = self._channels.get(number)
        if channel is not None:
            channel.on_the_way -= count

    def close(self) -> None:
        """Close everything. Idempotent."""
        for number in list(self._channels):
            self._end(number)
        if self._listener is not None:
            self._listener.close()

    def _connected(self, number: int) -> _Channel | None:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(self._path)
        except OSError:  # the server ends
            connected.close()
            self._send(number, b"")
            return None
        channel = self._channels[number] = _Channel(connected)
        return channel

    def _read(self, number: int, channel: _Channel) -> None:
        try:
            data = channel.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        channel.on_the_way += len(data)
        self._send(number, data)
        if not data:
            self._end(number)

    def _write(self, number: int, channel: _Channel) -> None:
        """Write what the channel takes; one whose other side has ended is closed behind that."""
        try:
            taken = channel.flush()
        except OSError:
            self._send(number, b"")
            self._end(number)
            return
        if taken:
            self._credit(number, taken)
        if channel.is_ending and not channel.pending:
            self._end(number)

    def _end(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.socket.close()


class _Channel:
    """One connection, at one end.

    Attributes:
        pending: what it has not taken yet.
        on_the_way: bytes that were sent, and that the other side's socket has not taken.
        is_ending: whether the other side sends no more.
    """

    __slots__ = ("is_ending", "on_the_way", "pending", "socket")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.pending: deque[memoryview] = deque()
        self.on_the_way = 0
        self.is_ending = False

    def fileno(self) -> int:
        """Its socket; -1 once closed."""
        return self.socket.fileno()

    @property
    def events(self) -> int:
        """What to poll it for."""
        reads = select.POLLIN if self.on_the_way < WINDOW_BYTES else 0
        return reads | (select.POLLOUT if self.pending else 0)

    def flush(self) -> int:
        """Write what it takes; how many bytes that were.

        Raises:
            OSError: its other end has gone.
        """
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while self.pending:
                sent = self.socket.send(self.pending[0])
                taken += sent
                if sent == len(self.pending[0]):
                    self.pending.popleft()
                else:
                    self.pending[0] = self.pending[0][sent:]
        return taken
