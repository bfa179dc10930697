"""The link between a stand-in and the node of its worker: records over one socket, TLS or not.

A record is a kind, a number and bytes. Nothing waits: records that do not fit into the socket are
kept, and what comes is taken as far as it is there. The concept is
docs/concepts/executor/engine.md.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from forebay.errors import BrokenError, DeadlineError, ProtocolError

__all__ = ["Link", "Record", "pack_message", "prove_server", "prove_worker", "unpack_message"]

(
    SERVE,
    CALL,
    SIDE,
    SIGNAL,
    CLIENT,
    PING,
    READY,
    REPLY,
    OUTPUT,
    ITEMS,
    RESULT,
    DIED,
    FAILED,
    CREDIT,
) = range(14)
"""Kinds of records."""

CREDIT_BYTES: Final = struct.Struct("<Q")
"""Of the tunnel: bytes of a channel that were taken."""

SECRET_BYTES: Final = 32

PENDING_MAX: Final = 4 << 20
"""While more than this waits to be sent, no further record is made."""

JOIN_BYTES_MAX: Final = 1 << 16
"""Records of no more bytes together are sent by one call."""

PING_S: Final = 1.0
"""Each end says something so often."""

PING_MS: Final = int(PING_S * 1000)

RECEIVE_BYTES_MAX: Final = 4 << 20
"""What is read at once: a peer that never stops sending holds up nothing else."""

_HEAD: Final = struct.Struct("<IBQ")
"""Bytes that follow the head, kind, number."""

_MESSAGE: Final = struct.Struct("<BI")
"""Flag, bytes of the head."""

_SEGMENT: Final = struct.Struct("<Q")

_BODY_BYTES_MAX: Final = (1 << 30) + (1 << 20)
"""The longest frame of the calls that it carries, and what stands around it."""

_READ_BYTES: Final = 1 << 18

_OF_WORKER, _OF_SERVER = b"worker", b"server"
"""Who proves itself; so that no proof is sent back as one's own."""

Record = tuple[int, int, bytes]
"""Kind, number, bytes."""

_T = TypeVar("_T")


class Link:
    """One end of it, over a connected socket that it owns. One thread uses it.

    Args:
        connected: a stream socket, or a TLS socket whose handshake is done.
        peer: stands in messages.
        silence: seconds after which a peer that says nothing is taken for lost.
    """

    def __init__(self, connected: socket.socket, peer: str, silence: float) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.peer = peer
        self.silence = silence
        self._out: deque[memoryview] = deque()
        self.pending = 0
        """Bytes that the socket has not taken yet."""
        self._input = bytearray()
        self._heard = self._said = time.monotonic()
        self._is_over = False
        self._gone_since: BrokenError | None = None
        """Why nothing more comes, as sending has found."""
        self.has_more = False
        """Whether there is more to take, of which the socket says nothing."""

    def fileno(self) -> int:
        """Its socket; -1 once closed."""
        return self._socket.fileno()

    @property
    def events(self) -> int:
        """What to poll it for."""
        return select.POLLIN | (select.POLLOUT if self._out else 0)

    def put(self, kind: int, number: int = 0, *parts: bytes | memoryview) -> None:
        """Have a record sent by the next `flush`; its bytes are copied."""
        size = sum(len(part) for part in parts)
        whole = b"".join((_HEAD.pack(size, kind, number), *parts))
        self._out.append(memoryview(whole))
        self.pending += len(whole)

    def flush(self) -> None:
        """Send what the socket takes.

        Raises:
            BrokenError: the peer is gone.
        """
        if self._out:
            self._said = time.monotonic()
        out = self._out
        try:
            while out:
                if len(out) > 1 and self.pending <= JOIN_BYTES_MAX:
                    whole = b"".join(out)
                    out.clear()
                    out.append(memoryview(whole))
                sent = self._socket.send(out[0])
                self.pending -= sent
                if sent == len(out[0]):
                    out.popleft()
                else:
                    out[0] = out[0][sent:]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            raise self._gone(error) from error

    def make_room(self) -> None:
        """Wait until no more than `PENDING_MAX` waits to be sent.

        Raises:
            BrokenError: the peer is gone, or takes nothing for too long.
        """
        if self.pending <= PENDING_MAX:
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        taken_at = turned_at = time.monotonic()
        while self.pending > PENDING_MAX:
            before = self.pending
            poll.poll(min(PING_MS, self.silence * 500))
            now = time.monotonic()
            if now - turned_at > self.silence:  # this process was stopped, and is the lost one
                raise self._silent()
            turned_at = now
            self._gone_since = self._gone_since or self._receive()
            self.has_more = bool(self._input)  # the socket is not ready for what was read here
            if self._gone_since is not None:
                raise self._gone_since
            self.flush()
            if self.pending < before:
                taken_at = now
            elif now - taken_at > self.silence:
                raise BrokenError(
                    f"{self.peer} has taken nothing for {self.silence:g} s (node_timeout)",
                    delivered="maybe",
                )

    def take(self) -> Iterator[Record]:
        """The records that have come; the last ones before the end of a broken link too.

        Raises:
            BrokenError: the peer is gone, and everything before that was taken.
            ProtocolError: it sends what is no record.
        """
        gone = self._gone_since or self._receive()
        at, end = 0, len(self._input)
        try:
            while end - at >= _HEAD.size:
                size, kind, number = _HEAD.unpack_from(self._input, at)
                if kind > CREDIT or size > _BODY_BYTES_MAX:
                    raise ProtocolError(
                        f"{self.peer} sent a record of kind {kind} and {size} bytes"
                    )
                if end - at < _HEAD.size + size:
                    break
                begin = at + _HEAD.size
                at = begin + size
                if kind != PING:
                    yield kind, number, bytes(self._input[begin:at])
        finally:
            del self._input[:at]  # also where the taker leaves
        if gone is not None:
            raise gone

    def keep_alive(self) -> None:
        """Say something if nothing was said for a while.

        Raises:
            BrokenError: the peer has said nothing for too long.
        """
        now = time.monotonic()
        if now - self._heard > self.silence:
            raise self._silent()
        if now - self._said >= PING_S and not self._out:
            self.put(PING)
            self.flush()

    def close(self) -> None:
        """Close the socket; what it has not taken is lost. Idempotent."""
        self._socket.close()

    def _receive(self) -> BrokenError | None:
        """Read what is there, within a limit; why nothing more comes, if so."""
        until = len(self._input) + RECEIVE_BYTES_MAX
        self.has_more = False
        while not self._is_over:
            if len(self._input) >= until:
                self.has_more = True
                return None
            try:
                data = self._socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None
            except OSError as error:
                self._is_over = True
                return self._gone(error)
            if not data:
                self._is_over = True
                break
            self._heard = time.monotonic()
            self._input += data
            if len(data) < _READ_BYTES and not isinstance(self._socket, ssl.SSLSocket):
                return None  # a TLS socket may hold more than it says
        return self._gone(None)

    def _silent(self) -> BrokenError:
        return BrokenError(
            f"{self.peer} has said nothing for {self.silence:g} s (node_timeout)",
            delivered="maybe",
        )

    def _gone(self, error: OSError | None) -> BrokenError:
        why = "it has closed the link" if error is None else str(error)
        return BrokenError(f"{self.peer} is gone: {why}", delivered="maybe")


def pack_message(flag: int, head: Any, segments: Any) -> list[bytes | memoryview]:
    """A call or a reply as the parts of a record: a flag, its head and its segments."""
    parts: list[bytes | memoryview] = [_MESSAGE.pack(flag, len(head)), head]
    for segment in segments or ():
        data = memoryview(segment).cast("B")
        parts += (_SEGMENT.pack(len(data)), data)
    return parts


def unpack_message(body: bytes) -> tuple[int, bytes, list[memoryview] | None]:
    """Flag, head and segments of such a record; the segments are views of it.

    Raises:
        ProtocolError: it is none.
    """
    try:
        flag, size = _MESSAGE.unpack_from(body)
        at = _MESSAGE.size + size
        head, segments = body[_MESSAGE.size : at], []
        while at < len(body):
            (size,) = _SEGMENT.unpack_from(body, at)
            at += _SEGMENT.size
            segments.append(memoryview(body)[at : at + size])
            at += size
    except struct.error as error:
        raise ProtocolError(f"a message ends before its end: {error}") from error
    if at != len(body):
        raise ProtocolError(f"a message of {len(body)} bytes ends at {at}")
    return flag, head, segments or None


def prove_worker(connected: socket.socket, secret: bytes, timeout: float) -> None:
    """Prove to the server's side that this is the node it has ordered, and have it prove itself.

    Raises:
        BrokenError: it is another one, or gone. DeadlineError: it never answered.
    """
    own, until = os.urandom(SECRET_BYTES), time.monotonic() + timeout
    try:
        connected.settimeout(timeout)
        connected.sendall(own)
        challenge = _exactly(connected, SECRET_BYTES, until)
        proof = _exactly(connected, SECRET_BYTES, until)
        if not hmac.compare_digest(proof, _proof(secret, _OF_SERVER, own, challenge)):
            raise BrokenError("the server of this worker does not know its secret", delivered="no")
        connected.sendall(_proof(secret, _OF_WORKER, own, challenge))
    except TimeoutError as error:
        raise DeadlineError(f"the server of this worker proved nothing in {timeout:g} s") from error
    except OSError as error:
        raise BrokenError(f"the server of this worker is gone: {error}", delivered="no") from error


def prove_server(connected: socket.socket, secret: bytes) -> Generator[int, None, bool]:
    """The other side of `prove_worker`, in steps, with the handshake of TLS before it.

    Yields:
        What to poll the socket for before the next step.

    Returns:
        Whether it is the node that was ordered.
    """
    own = os.urandom(SECRET_BYTES)
    connected.setblocking(False)
    try:
        if isinstance(connected, ssl.SSLSocket):
            yield from _waited(connected.do_handshake)
        challenge = yield from _received(connected, SECRET_BYTES)
        # A socket that has sent nothing takes so little at once.
        connected.sendall(own + _proof(secret, _OF_SERVER, challenge, own))
        proof = yield from _received(connected, SECRET_BYTES)
    except (OSError, BrokenError):
        return False
    return hmac.compare_digest(proof, _proof(secret, _OF_WORKER, challenge, own))


def _proof(secret: bytes, who: bytes, worker: bytes, server: bytes) -> bytes:
    return hmac.digest(secret, who + worker + server, hashlib.sha256)


def _exactly(connected: socket.socket, count: int, until: float) -> bytes:
    data = b""
    while len(data) < count:
        # 0 would mean not to wait.
        connected.settimeout(max(0.001, until - time.monotonic()))
        data += _some(connected, count - len(data))
    return data


def _received(connected: socket.socket, count: int) -> Generator[int, None, bytes]:
    data = b""
    while len(data) < count:
        data += yield from _waited(partial(_some, connected, count - len(data)))
    return data


def _some(connected: socket.socket, count: int) -> bytes:
    data = connected.recv(count)
    if not data:
        raise BrokenError("it has closed the link", delivered="no")
    return data


def _waited(step: Callable[[], _T]) -> Generator[int, None, _T]:
    """What `step` returns, once its socket is ready for it."""
    while True:
        try:
            return step()
        except (BlockingIOError, ssl.SSLWantReadError):
            yield select.POLLIN
        except ssl.SSLWantWriteError:
            yield select.POLLOUT
