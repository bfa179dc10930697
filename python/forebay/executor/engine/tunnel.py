"""Connections of a worker to the server's socket for clients, carried over the link.

A channel is a number, which the worker's side gives. Its bytes come in order; no bytes mean its
end, which each side says once: a number is forgotten when both have. Each side tells how many
bytes its socket has taken, and the other one sends no more than `WINDOW_BYTES` beyond that. A side
whose socket takes no more says so, and goes on sending what that socket still gives: a server that
another one replaces reads nothing more, and still answers what it has read.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Tunnel"]

READ_BYTES: Final = 1 << 16

WINDOW_BYTES: Final = 1 << 20
"""Of a channel on the way, in each direction."""

CHANNELS_MAX: Final = 64
"""Of a worker; further clients wait until one has left.

Eight workers in one process of a cluster use half of the usual 1,024 descriptors, and what one end
keeps for a worker is 64 MiB at most.
"""

ACCEPT_AGAIN_S: Final = 1.0
"""Without descriptors: until the next try, if no channel ends before."""

NOTHING_MORE: Final = 0
"""As a number of bytes that were taken: the socket takes none any more."""

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
        self._accepts_at = 0.0
        self._next = 1
        self._channels: dict[int, _Channel] = {}
        self._ended: set[int] = set()
        """Channels that have ended here, and of which the other side may still send something."""
        if listens:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.setblocking(False)
            self._listener.bind(path)
            os.chmod(path, 0o600)
            self._listener.listen(16)

    def events(self) -> dict[int, int]:
        """What to poll its descriptors for."""
        wanted = {}
        if self._listener is not None and self._accepts:
            wanted[self._listener.fileno()] = select.POLLIN
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
            if events & ~select.POLLOUT and channel.reads and number in self._channels:
                self._read(number, channel)
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept(self._listener)

    def take(self, number: int, data: bytes) -> None:
        """Bytes of the other side; none: the channel has ended there."""
        if number in self._ended:
            if not data:
                self._ended.remove(number)
            return
        channel = self._channels.get(number)
        if channel is None and self._listener is None:
            channel = self._connected(number, data)
        if channel is None:
            return
        if not data:
            channel.is_ending = True
        elif channel.takes:
            channel.pending.append(memoryview(data))
        self._write(number, channel)

    def take_credit(self, number: int, count: int) -> None:
        """The other side has taken so many bytes more of a channel."""
        channel = self._channels.get(number)
        if channel is None:
            return
        if count == NOTHING_MORE:
            channel.read_no_more()
        channel.on_the_way -= count

    def close(self) -> None:
        """Close everything. Idempotent."""
        for channel in self._channels.values():
            channel.socket.close()
        self._channels.clear()
        if self._listener is not None:
            self._listener.close()

    @property
    def _accepts(self) -> bool:
        """Whether it takes another client."""
        used = len(self._channels) + len(self._ended)
        return used < CHANNELS_MAX and time.monotonic() >= self._accepts_at

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors: the listener stays ready, and polling it would spin
            self._accepts_at = time.monotonic() + ACCEPT_AGAIN_S
            return
        self._channels[self._next] = _Channel(connected)
        self._next += 1

    def _connected(self, number: int, data: bytes) -> _Channel | None:
        """The new channel for these bytes; None: it has ended."""
        if data:
            try:
                channel = _Channel(_connect(self._path))
            except OSError:  # the server ends
                self._ended.add(number)
            else:
                self._channels[number] = channel
                return channel
        self._send(number, b"")
        return None

    def _read(self, number: int, channel: _Channel) -> None:
        try:
            data = channel.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end(number, channel)
            return
        channel.on_the_way += len(data)
        self._send(number, data)

    def _write(self, number: int, channel: _Channel) -> None:
        """Write what the channel takes; one whose other side has ended is closed behind that."""
        try:
            taken = channel.flush()
        except OSError:  # it takes nothing more; what it has sent before is read until its end
            channel.take_no_more()
            self._credit(number, NOTHING_MORE)
        else:
            if taken:
                self._credit(number, taken)
        if channel.is_ending and not channel.pending:
            self._end(number, channel)

    def _end(self, number: int, channel: _Channel) -> None:
        del self._channels[number]
        if not channel.is_ending:
            self._ended.add(number)
        self._accepts_at = 0.0
        channel.socket.close()
        self._send(number, b"")


def _connect(path: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.connect(path)
    except OSError:
        connected.close()
        raise
    return connected


class _Channel:
    """One connection, at one end.

    Attributes:
        pending: what it has not taken yet.
        on_the_way: bytes that were sent, and that the other side's socket has not taken.
        takes: whether its socket takes bytes; else those for it are dropped.
        reads: whether the other side takes bytes; else its socket is not read.
        is_ending: whether the other side sends no more.
    """

    __slots__ = ("is_ending", "on_the_way", "pending", "reads", "socket", "takes")

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.pending: deque[memoryview] = deque()
        self.on_the_way = 0
        self.takes = self.reads = True
        self.is_ending = False

    def fileno(self) -> int:
        """Its socket; -1 once closed."""
        return self.socket.fileno()

    @property
    def events(self) -> int:
        """What to poll it for."""
        reads = self.reads and self.on_the_way < WINDOW_BYTES
        return (select.POLLIN if reads else 0) | (select.POLLOUT if self.pending else 0)

    def flush(self) -> int:
        """Write what it takes; how many bytes that were.

        Raises:
            OSError: its other end reads no more.
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

    def take_no_more(self) -> None:
        """Drop what is for it, from now on."""
        self.takes = False
        self.pending.clear()

    def read_no_more(self) -> None:
        """Have what its other end sends fail there. Idempotent."""
        self.reads = False
        with contextlib.suppress(OSError):  # it has gone
            self.socket.shutdown(socket.SHUT_RD)
            # Closed with unread input, it would tell a reset in the place of an end.
            while self.socket.recv(READ_BYTES):
                pass
