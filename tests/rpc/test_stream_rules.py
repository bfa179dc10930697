"""Peers that break the rules of streams, over raw sockets: an error that names them, no hang."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from msgspec import msgpack

from forebay import rpc
from forebay._core import Connection
from forebay.errors import BrokenError, ProtocolError
from forebay.rpc import Channel

CALL, REPLY, ITEM, CREDIT = 1, 2, 12, 13
STREAM = 4
PREFACE_BYTES = 32
HEADER = struct.Struct("<IBBHQII")


def preface(role: int, features: int = 1) -> bytes:
    return struct.pack("<4sHBxQQHxxI", b"FBAY", 1, role, features, 1 << 30, 1024, 0)


def frame(kind: int, call: int, *, flags: int = 0, time: int = 0xFFFF_FFFF) -> bytes:
    head = b"\xc0" if kind == ITEM else b""  # None in msgpack
    return HEADER.pack(len(head), kind, flags, 0, call, time, 0) + head


def read(end: socket.socket, count: int) -> bytes:
    return end.recv(count, socket.MSG_WAITALL)


def server_that(answers: bytes, features: int = 1) -> Channel:
    """A channel to a server that answers its first stream with these bytes."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with theirs, contextlib.suppress(OSError):  # the caller cuts it
            theirs.sendall(preface(2, features))
            header = HEADER.size
            read(theirs, PREFACE_BYTES + header)  # the credit
            size = HEADER.unpack(read(theirs, header))[0]
            read(theirs, size)
            theirs.sendall(answers)
            while theirs.recv(4096):
                pass

    threading.Thread(target=run, daemon=True).start()
    return Channel(Connection(ours.detach(), peer="rogue"), codec="msgpack")


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (frame(ITEM, 1) * 3, "no credit left"),
        (frame(ITEM, 9), "not open"),
        (frame(ITEM, 1) + frame(REPLY, 1) + frame(ITEM, 1), "not open"),
        (frame(CREDIT, 1, time=1), "does not serve"),
        (frame(ITEM, 1, flags=STREAM), "flags"),
    ],
)
def test_a_server_that_breaks_the_rules(answers: bytes, says: str) -> None:
    """It is named with the place in its bytes, and nothing of it is believed any more."""

    def use(channel: Channel) -> None:
        assert set(channel.stream("anything", credit=2)) == {None}
        channel.call("anything", timeout=10)  # where the stream itself had ended well

    with server_that(answers) as channel:
        with pytest.raises(ProtocolError, match=says) as caught:
            use(channel)
        assert caught.value.peer == "rogue"
        assert caught.value.offset >= PREFACE_BYTES


def test_a_server_that_does_not_speak_streams() -> None:
    """An older peer is named as such, before and after its preface has come."""
    with server_that(b"", features=0) as channel:
        stream = channel.stream("anything")
        for begin in (lambda: next(stream), lambda: channel.stream("anything")):
            with pytest.raises(BrokenError, match="does not support streams") as caught:
                begin()
            assert caught.value.delivered == "no"


def served(send: bytes) -> Exception | None:
    """What a serving loop ends with that gets these bytes."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(preface(1) + send)
        ours.shutdown(socket.SHUT_WR)
        connection = Connection(theirs.detach(), server=True, peer="rogue")
        try:
            rpc.serve_connection(connection, object())
        except ProtocolError as error:
            return error
        finally:
            connection.close()
    return None


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (frame(CALL, 1, flags=STREAM), "without its first credit"),
        (frame(CREDIT, 2, time=1) + frame(CALL, 1, flags=STREAM), "without its first credit"),
        (frame(CREDIT, 1, time=0), "invalid credit 0"),
        (frame(CREDIT, 1, time=65_537), "invalid credit 65537"),
        (frame(CALL, 1, flags=STREAM | 2), "flags"),
        (frame(ITEM, 1), "not open"),
    ],
)
def test_a_caller_that_breaks_the_rules(sent: bytes, says: str) -> None:
    """A service ends its connection, and says why."""
    error = served(sent)
    assert error is not None
    assert says in str(error)


def test_a_caller_that_widens_a_stream_above_its_limit() -> None:
    """Credit is added up, and the sum has a limit."""
    first = frame(CREDIT, 1, time=65_536) + frame(CALL, 1, flags=STREAM)
    error = served(first + frame(CREDIT, 1, time=1))
    assert error is not None
    assert "limit 65536" in str(error)


def test_a_late_credit_harms_nobody() -> None:
    """Credit for a stream that has ended meanwhile is no offence."""
    stream = frame(CREDIT, 1, time=1) + frame(CALL, 1, flags=STREAM)  # its head is no call
    assert served(stream + frame(CREDIT, 1, time=1) + frame(CREDIT, 7, time=5)) is None


class Endless:
    """A stream without an end."""

    def __init__(self) -> None:
        self.closed = 0

    def run(self) -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            self.closed += 1


def test_any_cut_of_a_stream_closes_its_generator() -> None:
    """Wherever a caller's bytes end, its generator's `finally` runs and the loop ends."""
    head = msgpack.encode(("run", [], None))
    call = HEADER.pack(len(head), CALL, STREAM, 0, 1, 0xFFFF_FFFF, 0) + head
    whole = preface(1) + frame(CREDIT, 1, time=3) + call + frame(CREDIT, 1, time=2)
    begins = PREFACE_BYTES + HEADER.size + len(call)
    for cut in range(len(whole) + 1):
        ours, theirs = socket.socketpair()
        handler = Endless()
        with ours:
            ours.sendall(whole[:cut])
            ours.shutdown(socket.SHUT_WR)
            connection = Connection(theirs.detach(), server=True, peer="rogue")
            rpc.serve_connection(connection, handler)
            connection.close()
        assert handler.closed == (cut >= begins), cut
