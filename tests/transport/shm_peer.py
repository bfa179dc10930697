"""Peers over shared memory that tests kill or let lie: run as a program, or spoken by hand."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import socket
import struct
import sys

from forebay._core import MessageConnection
from forebay.transport import connect

TAIL, HEAD, RETURNED, RING, CONTROL_BYTES = 0, 64, 4096, 16_384, 278_528
"""Of the control block; see crates/transport/src/stream/shm/mod.rs."""
F_ADD_SEALS = 1033
SEAL_SHRINK, SEAL_GROW, SEAL_FUTURE_WRITE = 2, 4, 16
SEALS = SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE
PREFACE = b"FBAY" + struct.pack("<HBBQQHHI", 1, 3, 0, 0, 1 << 30, 65_535, 0, 0)
HELLO, CHUNK, GONE = 1, 2, 3


def record(kind: int, chunk: int = 0, offset: int = 0, size: int = CONTROL_BYTES) -> bytes:
    return b"FBSM" + struct.pack("<BBHIIQQ", 2, kind, 0, chunk, 0, offset, size)


def name(
    chunk: int = 0, place: int = 0, generation: int = 1, offset: int = 0, size: int = 8
) -> bytes:
    return struct.pack("<IIQQQ", chunk, place, generation, offset, size)


def named_message(table: bytes) -> bytes:
    header = struct.pack("<IBBHQII", 0, 11, 0, 1, 0, 0xFFFFFFFF, 0)
    return header + struct.pack("<Q", len(table)) + table


class Liar:
    """The other end of a connection, with every byte of its memory in the test's hands."""

    def __init__(self, *, seals: int = SEALS) -> None:
        ours, self.lifeline = socket.socketpair()
        self.memory = os.memfd_create("liar", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.memory, 1 << 20)
        self.map = mmap.mmap(self.memory, 1 << 20)
        fcntl.fcntl(self.memory, F_ADD_SEALS, seals)
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.process = os.pidfd_open(os.getpid())
        self.core = MessageConnection(ours.detach(), peer="the tester", trusted=True, shared=True)

    def hello(self, data: bytes | None = None, *, descriptors: int = 3) -> None:
        given = [self.memory, self.bell, self.process][:descriptors]
        socket.send_fds(self.lifeline, [record(HELLO) if data is None else data], given)

    def write(self, data: bytes) -> None:
        """Bytes into the ring, from its start, and the tail behind them."""
        self.map[RING : RING + len(data)] = data
        self.put(TAIL, len(data))

    def put(self, word: int, value: int) -> None:
        self.map[word : word + 8] = struct.pack("<Q", value)

    def close(self) -> None:
        self.core.close()
        self.lifeline.close()
        self.map.close()
        os.close(self.memory)
        os.close(self.bell)
        os.close(self.process)


def say(number: int) -> None:
    """Tell the test, and stay until it ends this process."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()
    signal.pause()


def hold(url: str, count: int) -> None:
    """Take messages, keep them, say so, and stay."""
    with connect(url) as connection:
        kept = [connection.recv() for _ in range(count)]
        say(len(kept))


def give(url: str, size: int) -> None:
    """Send a long frame, say so, and stay."""
    with connect(url) as connection:
        connection.send(bytes(range(256)) * (size // 256))
        say(size)


if __name__ == "__main__":
    {"hold": hold, "give": give}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
