"""What the two servers of a take-over say to each other, over a socket of packets.

Each packet is a JSON object with the key `is`, and may carry descriptors. The new server begins:

| new server | old server |
|---|---|
| `begin`: its protocol, the version of its store | `begun`: its HTTP socket, its manager |
| `ready`: the application is loaded; how long to wait | `waits`: for what |
| | `worker`: one that goes over; `runs`: more of its runs; `given` |
| `taken`: it has the store and listens | `left`: it speaks to nobody any more |
| `stop`: a worker that went over was asked to leave | `died`: how such a worker ended |

The old server may answer `refused`, with the reason, in the place of `begun` and `given`. After
`left` it stays the parent of the workers that went over, until the last of them has ended.

The end of the connection before `taken` gives the take-over up.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from forebay.errors import BrokenError
from forebay.executor.wire.peer import peer_of

PROTOCOL: Final = 2

PACKET_BYTES_MAX: Final = 64 << 10
DESCRIPTORS_MAX: Final = 8

RUNS_A_PACKET_MAX: Final = 500
"""A worker of the async lane may have thousands of runs."""

SEND_S: Final = 5
"""How long a packet may wait for the other server to read those before it."""


class Packet(NamedTuple):
    """One of the other server.

    Attributes:
        told: its object.
        descriptors: that came with it; whoever takes the packet closes them.
    """

    told: dict[str, Any]
    descriptors: list[int]

    @property
    def kind(self) -> str:
        """What it says."""
        return str(self.told.get("is"))


class Channel:
    """The connection to the other server. One thread receives; any thread sends.

    Args:
        connection: it is taken.

    Attributes:
        pid: the process at the other end.

    Raises:
        BrokenError: another user's.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid, user = peer_of(connection)
        if user != os.geteuid():
            connection.close()
            raise BrokenError(f"the process {self.pid} is of user {user}", delivered="no")
        limit = struct.pack("ll", SEND_S, 0)  # a struct timeval of socket(7)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    @classmethod
    def to(cls, path: Path) -> Self:
        """Connect to the server that listens at a path; OSError if none does."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            raise
        return cls(connection)

    def send(self, kind: str, descriptors: tuple[int, ...] = (), **told: Any) -> None:
        """Say something.

        Raises:
            BrokenError: nobody is there.
        """
        packet = json.dumps({"is": kind, **told}).encode()
        try:
            socket.send_fds(self._connection, [packet], list(descriptors))
        except OSError as error:
            raise self._gone(error.strerror) from None

    def receive(self, timeout: float | None = None) -> Packet | None:
        """What the other one says; None if that is nothing in this time, in seconds.

        Raises:
            BrokenError: nobody is there.
        """
        if not self.wait(timeout):
            return None
        try:
            packet, descriptors, flags, _ = socket.recv_fds(
                self._connection, PACKET_BYTES_MAX, DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC
            )
        except OSError as error:
            raise self._gone(error.strerror) from None
        if not packet:
            raise self._gone("it has ended")
        try:
            told = json.loads(packet)
        except ValueError:
            told = None
        is_cut = flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
        if is_cut or not isinstance(told, dict):
            close_all(descriptors)
            why = "no descriptor is left here" if is_cut else "a packet that is no JSON object"
            raise self._gone(why)
        return Packet(told, descriptors)

    def expect(self, kind: str, timeout: float) -> Packet:
        """The next packet, of this kind.

        Raises:
            BrokenError: another came, or none in this time, in seconds.
        """
        packet = self.receive(timeout)
        if packet is not None and packet.kind == kind:
            return packet
        if packet is None:
            raise self._gone(f"it says nothing for {timeout:g} s")
        close_all(packet.descriptors)
        why = packet.told.get("why") if packet.kind == "refused" else f"it says {packet.kind!r}"
        raise self._gone(str(why))

    def wait(self, timeout: float | None) -> bool:
        """Whether something has come in this time, in seconds; the end counts."""
        try:
            return is_readable(self._connection.fileno(), timeout)
        except ValueError:
            raise self._gone("the connection is closed") from None

    def fileno(self) -> int:
        """Readable when something has come."""
        return self._connection.fileno()

    def close(self) -> None:
        """End it, also for a thread that waits for something. Idempotent."""
        with contextlib.suppress(OSError):  # the other one was faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _gone(self, why: str | None) -> BrokenError:
        return BrokenError(f"the server in process {self.pid}: {why}", delivered="maybe")


class Acceptor:
    """The socket at which a server is asked for its place, for this user alone.

    A file that has the name is replaced: the caller holds the lock of the state directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            path.unlink(missing_ok=True)
            self._socket.bind(str(path))
            path.chmod(0o600)  # before it listens: nobody can connect until then
            self._socket.listen(8)
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self._file = path.stat()

    def fileno(self) -> int:
        """Readable when somebody asks."""
        return self._socket.fileno()

    def accept(self) -> Channel:
        """Who asks; BrokenError if it is another user's process, OSError."""
        return Channel(self._socket.accept()[0])

    def is_gone(self) -> bool:
        """Whether its file was removed, so that nobody finds it."""
        return not self._path.exists()

    def close(self) -> None:
        """Remove it, unless another server's is in its place. Idempotent."""
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.path.samestat(self._path.stat(), self._file):
                self._path.unlink()


def is_readable(descriptor: int, timeout: float | None) -> bool:
    """Whether it becomes so in this time, in seconds: a pidfd when its process has ended.

    Raises:
        ValueError: it is closed.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout is None else timeout * 1000))


def close_all(descriptors: list[int]) -> None:
    """Close descriptors that came and are not wanted."""
    for descriptor in descriptors:
        os.close(descriptor)
