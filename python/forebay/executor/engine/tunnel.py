"""Connections of a worker to the server's socket for clients, carried over the link.

A channel is a number, which the worker's side gives. Its bytes come in order; no bytes mean its
end, which either side may say.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from typing import Final

__all__ = ["Tunnel"]

READ_BYTES: Final = 1 << 16

Send = Callable[[int, bytes], None]
"""Sends bytes of a channel over the link."""


class Tunnel:
    """The channels at one end of a link. One thread uses it.

    Args:
        path: where it listens for the worker, or what it connects channels of the other side to.
        listens: which of both.
        send: to the other side.
    """

    def __init__(self, path: str, *, listens: bool, send: Send) -> None:
        self._path = path
        self._send = send
        self._listener: socket.socket | None = None
        self._next = 1
        self._channels: dict[int, socket.socket] = {}
        self._pending: dict[int, bytes] = {}
        """What a channel has not taken yet."""
        if listens:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.setblocking(False)
            self._listener.bind(path)
            os.chmod(path, 0o600)
            self._listener.listen(16)

    def events(self) -> dict[int, int]:
        """What to poll its descriptors for."""
        wanted = {} if self._listener is None else {self._listener.fileno(): select.POLLIN}
        for number, channel in self._channels.items():
            writes = select.POLLOUT if number in self._pending else 0
            wanted[channel.fileno()] = select.POLLIN | writes
        return wanted

    def advance(self, ready: dict[int, int]) -> None:
        """Carry what has come."""
        if self._listener is not None and self._listener.fileno() in ready:
            with contextlib.suppress(OSError):
                self._begin(self._next, self._listener.accept()[0])
                self._next += 1
        for number, channel in list(self._channels.items()):
            events = ready.get(channel.fileno(), 0)
            if events & select.POLLOUT:
                self._write(number, channel)
            if events & ~select.POLLOUT:
                self._read(number, channel)

    def take(self, number: int, data: bytes) -> None:
        """Bytes of the other side; none: the channel has ended there."""
        channel = self._channels.get(number)
        if channel is None and data and self._listener is None:
            channel = socket.socket(socket.AF_UNIX)
            try:
                channel.connect(self._path)
            except OSError:  # the server ends
                channel.close()
                self._send(number, b"")
                return
            self._begin(number, channel)
        if channel is None:
            return
        if not data:
            self._end(number)
            return
        self._pending[number] = self._pending.get(number, b"") + data
        self._write(number, channel)

    def close(self) -> None:
        """Close everything. Idempotent."""
        for number in list(self._channels):
            self._end(number)
        if self._listener is not None:
            self._listener.close()

    def _begin(self, number: int, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channels[number] = channel

    def _read(self, number: int, channel: socket.socket) -> None:
        try:
            data = channel.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._send(number, data)
        if not data:
            self._end(number)

    def _write(self, number: int, channel: socket.socket) -> None:
        data = self._pending[number]
        try:
            data = data[channel.send(data) :]
        except BlockingIOError:
            pass
        except OSError:
            self._send(number, b"")
            self._end(number)
            return
        if data:
            self._pending[number] = data
        else:
            del self._pending[number]

    def _end(self, number: int) -> None:
        self._pending.pop(number, None)
        self._channels.pop(number).close()
