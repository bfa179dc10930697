"""The link: records whole and in order, proofs, silence, what breaks it."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from forebay.errors import BrokenError, DeadlineError, ProtocolError
from forebay.executor.engine.link import (
    CALL,
    CREDIT,
    OUTPUT,
    PENDING_MAX,
    SECRET_BYTES,
    Link,
    Record,
    pack_message,
    prove_worker,
    unpack_message,
)
from tests.executor.engine.proving import proved

SECRET = bytes(range(SECRET_BYTES))


Sockets = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Sockets]:
    """Two connected sockets."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def linked(ends: Sockets, silence: float = 5.0) -> tuple[Link, Link]:
    """Both ends of a link over them."""
    return Link(ends[0], "the one", silence), Link(ends[1], "the other", silence)


def taken(link: Link, count: int) -> list[Record]:
    """So many records, as they come."""
    records: list[Record] = []
    while len(records) < count:
        select.select((link,), (), (), 5.0)
        records += link.take()
    return records


def test_records_come_whole_and_in_order(ends: Sockets) -> None:
    """Small and large ones, and ones without bytes."""
    one, other = linked(ends)
    bodies = [b"", b"x", b"y" * 300_000, b"", b"z" * 5]
    for number, body in enumerate(bodies):
        one.put(CALL, number, body[:2], body[2:])
    got: list[Record] = []
    while len(got) < len(bodies):
        one.flush()
        got += other.take()
    assert got == [(CALL, number, body) for number, body in enumerate(bodies)]
    assert one.pending == 0


def test_what_came_before_the_end_is_taken_first(ends: Sockets) -> None:
    """And then the end is told, each time that somebody looks."""
    one, other = linked(ends)
    one.put(OUTPUT, 7, b"last words")
    one.flush()
    one.close()
    assert taken(other, 1) == [(OUTPUT, 7, b"last words")]
    for _ in range(2):
        with pytest.raises(BrokenError, match="the other is gone"):
            list(other.take())


@pytest.mark.parametrize("head", [(5, CREDIT + 1), ((1 << 31), CALL)], ids=["kind", "bytes"])
def test_what_is_no_record_is_refused(ends: Sockets, head: tuple[int, int]) -> None:
    """Before any of its bytes is kept."""
    link = Link(ends[1], "the one", 5.0)
    ends[0].sendall(head[0].to_bytes(4, "little") + bytes([head[1]]) + bytes(8))
    with pytest.raises(ProtocolError, match="a record of kind"):
        list(link.take())


def test_a_peer_that_says_nothing_is_lost(ends: Sockets) -> None:
    """One that says something is not; the pings are no records."""
    one, other = linked(ends, silence=0.2)
    assert list(other.take()) == []
    one._said = 0.0  # a ping is due
    one.keep_alive()
    time.sleep(0.15)
    assert list(other.take()) == []
    time.sleep(0.1)
    other.keep_alive()
    time.sleep(0.3)
    with pytest.raises(BrokenError, match=r"the other has said nothing for 0\.2 s"):
        other.keep_alive()


def test_room_is_waited_for_while_the_peer_reads(ends: Sockets) -> None:
    """A slow reader bounds what waits; one that does not read is lost in the end."""
    one, other = linked(ends, silence=0.5)
    sent = 24
    got: list[Record] = []

    def read() -> None:
        while len(got) < sent:
            got.extend(taken(other, 1))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(sent):
        one.put(OUTPUT, number, bytes(1 << 20))
        one.make_room()
        assert one.pending <= PENDING_MAX
    while one.pending:
        one.flush()
    reader.join()
    assert [number for _, number, _ in got] == list(range(sent))
    for number in range(PENDING_MAX >> 20):
        one.put(OUTPUT, number, bytes(1 << 20))
    one.put(OUTPUT, 0, bytes(1 << 20))
    with pytest.raises(BrokenError, match=r"has taken nothing for 0\.5 s"):
        one.make_room()


@pytest.mark.parametrize("count", [1, 3])
def test_what_came_while_room_was_waited_for_is_taken(ends: Sockets, count: int) -> None:
    """It has left the socket, which says nothing of it."""
    one, other = linked(ends)
    for number in range(count):
        other.put(CALL, number, b"call")
    other.flush()
    one.put(OUTPUT, 0, bytes(2 * PENDING_MAX))
    one.flush()
    reading = threading.Thread(target=taken, args=(other, 1))
    reading.start()
    one.make_room()
    while one.pending:
        one.flush()
    reading.join()
    assert not select.select((one,), (), (), 0)[0]
    assert one.has_more
    assert [number for _, number, _ in one.take()] == list(range(count))
    assert not one.has_more


class Proving:
    """The server's side of a proof, in a thread; `is_proved` once it has ended."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._is_proved = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._is_proved = proved(self._server, SECRET)

    def is_proved(self) -> bool:
        """What came of it."""
        self._thread.join()
        return self._is_proved


def test_who_knows_the_secret_is_let_in(ends: Sockets) -> None:
    """Each side learns that of the other."""
    proving = Proving(ends[0])
    prove_worker(ends[1], SECRET, 2.0)
    assert proving.is_proved()


def test_who_does_not_know_the_secret_is_refused(ends: Sockets) -> None:
    """By the node, which learns it first."""
    proving = Proving(ends[0])
    with pytest.raises(BrokenError, match="does not know its secret"):
        prove_worker(ends[1], bytes(SECRET_BYTES), 2.0)
    ends[1].close()
    assert not proving.is_proved()


def test_a_proof_that_is_sent_back_proves_nothing(ends: Sockets) -> None:
    """The server's own proof is none of a node."""
    proving, node = Proving(ends[0]), ends[1]
    node.sendall(bytes(SECRET_BYTES))
    told = b""
    while len(told) < 2 * SECRET_BYTES:
        told += node.recv(2 * SECRET_BYTES - len(told))
    node.sendall(told[SECRET_BYTES:])
    assert not proving.is_proved()


def test_a_server_that_says_nothing_ends_the_wait(ends: Sockets) -> None:
    """In the time that was given for it."""
    with pytest.raises(DeadlineError, match=r"proved nothing in 0\.2 s"):
        prove_worker(ends[1], SECRET, 0.2)


def test_a_server_that_drips_ends_the_wait(ends: Sockets) -> None:
    """The time is that of the whole proof."""
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.05):
            ends[0].send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    begun = time.monotonic()
    with pytest.raises(DeadlineError):
        prove_worker(ends[1], SECRET, 0.4)
    assert time.monotonic() - begun < 2.0
    is_over.set()
    dripping.join()


@pytest.mark.parametrize("segments", [None, [b""], [b"a", b"bc" * 70_000]])
def test_messages_travel_whole(segments: list[bytes] | None) -> None:
    """A flag, a head and segments."""
    body = b"".join(pack_message(1, b"head", segments))
    flag, head, got = unpack_message(body)
    assert (flag, head) == (1, b"head")
    assert [bytes(it) for it in got or ()] == (segments or [])


def test_a_cut_message_is_refused() -> None:
    """At every length."""
    body = b"".join(pack_message(0, b"head", [b"segment"]))
    whole_without = len(b"".join(pack_message(0, b"head", None)))
    for size in range(len(body)):
        if size == whole_without:
            continue  # a message without segments
        with pytest.raises(ProtocolError, match="a message"):
            unpack_message(body[:size])
