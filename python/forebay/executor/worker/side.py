"""The side socket of a worker: messages without an answer.

To the server: output of asynchronous requests, progress, warnings, figures, that there are items,
and whether a run waits for its children. From it: interrupts.
A record is one packet, so nothing here is framed; crates/executor/src/side.rs is the other end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time

from forebay.executor.wire.ids import number_of

HELLO, LOG, PROGRESS, WARNING, RETURNED, USAGE, ITEMS, WAITS, GOES_ON = range(9)
"""Kinds of records to the server."""

INTERRUPT, RECALL = 1, 2
"""Kinds of records from the server."""

RECORD_BYTES_MAX = 16 << 10
"""The most bytes of a record's payload; longer output is sent in parts."""

REMADE_S = 5.0
"""For the server to make its socket again, which a clean-up of the runtime directory has removed.

It looks ten times a second; the worker has its first run by then, which would end with it.
"""

AGAIN_S = 0.02

_HELLO = struct.Struct("<BIQ")
HELLO_BYTES = _HELLO.size
_HEAD = struct.Struct("<BQI")


class Side:
    """The worker's end. Thread-safe: each record is one system call."""

    __slots__ = ("_socket", "fileno")

    def __init__(self, connected: socket.socket) -> None:
        """Take over a connected socket."""
        self._socket = connected
        self.fileno = connected.fileno

    @classmethod
    def connect(cls, path: str, slot: int, nonce: int, output: int) -> Side:
        """Connect, and identify this worker, with the read end of the output pipe.

        Args:
            path: of the server's side door.
            slot: the number of the worker's slot.
            nonce: a number from the server, which proves that this is the worker that it means.
            output: descriptor of the pipe's read end; the caller closes it.

        Raises:
            OSError: nobody listens there; a socket that a clean-up has removed is waited for.
        """
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        until = time.monotonic() + REMADE_S
        while (code := connected.connect_ex(path)) == errno.ENOENT and time.monotonic() < until:
            time.sleep(AGAIN_S)
        if code:
            connected.close()
            raise OSError(code, os.strerror(code), path)
        socket.send_fds(connected, [_HELLO.pack(HELLO, slot, nonce)], [output])
        return cls(connected)

    def send(self, kind: int, id: str, attempt: int, payload: bytes, *, wait: bool = True) -> None:
        """Send a record; it is dropped if the server has closed the socket.

        With `wait` it waits for a slow server, which slows down requests that print too much;
        without, a record that does not fit now is dropped.
        """
        record = _HEAD.pack(kind, number_of(id), attempt) + payload
        with contextlib.suppress(OSError):  # full, or gone: then the keeper ends this worker
            self._socket.send(record, 0 if wait else socket.MSG_DONTWAIT)

    def report(self, figures: bytes) -> bool:
        """Send figures of this worker, in msgpack; False: they do not fit now."""
        try:
            self._socket.send(_HEAD.pack(USAGE, 0, 0) + figures, socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def tell_items(self, id: str, attempt: int, *, wait: bool) -> bool:
        """Report that a run has items, or more of them; False: that does not fit now.

        With `wait` it waits for a slow server.
        """
        record = _HEAD.pack(ITEMS, number_of(id), attempt)
        try:
            self._socket.send(record, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the server has gone, and the keeper ends this worker
        return True

    def give_back(self, call: int) -> bool:
        """Report that a recalled call will not begin; False: that failed, so it must begin."""
        try:
            self._socket.send(_HEAD.pack(RETURNED, call, 0))
        except OSError:
            return False
        return True

    def interrupts(self, recalls: list[int] | None = None) -> list[tuple[int, int]]:
        """Take the interrupts of the server: number and attempt of each run. Never waits.

        Args:
            recalls: gets the numbers of calls that the server recalls.
        """
        found = []
        while True:
            try:
                record = self._socket.recv(_HEAD.size, socket.MSG_DONTWAIT)
            except OSError:
                break
            if len(record) < _HEAD.size:
                break
            kind, number, attempt = _HEAD.unpack(record)
            if kind == INTERRUPT:
                found.append((number, attempt))
            elif kind == RECALL and recalls is not None:
                recalls.append(number)
        return found

    def forward(self, record: bytes) -> None:
        """Send a record of a worker that is elsewhere; it waits for a slow server."""
        with contextlib.suppress(OSError):  # the server has gone, and the keeper ends this process
            self._socket.send(record)

    def taken(self) -> bytes | None:
        """The next record of the server as it is; None: there is none now. Never waits."""
        try:
            return self._socket.recv(_HEAD.size, socket.MSG_DONTWAIT) or None
        except OSError:
            return None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def parsed(record: bytes) -> tuple[int, int, int]:
    """Kind of a record, and the number of its request or call, and its attempt."""
    kind, number, attempt = _HEAD.unpack_from(record)
    return kind, number, attempt


def interrupt_of(number: int, attempt: int) -> bytes:
    """The record that interrupts a run."""
    return _HEAD.pack(INTERRUPT, number, attempt)


def redirect_output() -> int:
    """Make stdout and stderr of this process a new pipe; its read end, which the caller closes."""
    reading, writing = os.pipe()
    for descriptor in (1, 2):
        os.dup2(writing, descriptor)
    os.close(writing)
    return reading
