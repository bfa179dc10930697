"""Connections carried over a link: bytes in order, both ends, a server that is not there."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor.engine.tunnel import READ_BYTES, WINDOW_BYTES, Tunnel


class Ends:
    """Both tunnels of a link, in one thread."""

    def __init__(self, worker: Path, server: Path) -> None:
        self._near = Tunnel(
            str(worker),
            listens=True,
            send=lambda number, data: self._far.take(number, data),
            credit=lambda number, count: self._far.take_credit(number, count),
        )
        self._far = Tunnel(
            str(server),
            listens=False,
            send=lambda number, data: self._near.take(number, data),
            credit=lambda number, count: self._near.take_credit(number, count),
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            poll = select.poll()
            for descriptor, events in (self._near.events() | self._far.events()).items():
                poll.register(descriptor, events)
            ready = dict(poll.poll(20))
            self._near.advance(ready)
            self._far.advance(ready)

    def close(self) -> None:
        """End both."""
        self._ending.set()
        self._thread.join()
        self._near.close()
        self._far.close()


def test_bytes_go_both_ways_and_ends_are_told(tmp_path: Path) -> None:
    """Several connections at once, of more bytes than a socket holds."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "server"))
        listener.listen()
        ends = Ends(tmp_path / "worker", tmp_path / "server")
        try:
            clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
            for client in clients:
                client.settimeout(10)
                client.connect(str(tmp_path / "worker"))
            for at, client in enumerate(clients):
                client.sendall(bytes([at]))
            served = {}
            for _ in clients:
                connected, _ = listener.accept()
                connected.settimeout(10)
                served[connected.recv(1)[0]] = connected
            sent = [bytes([65 + at]) * 900_000 for at in range(3)]
            for at, connected in served.items():
                threading.Thread(target=connected.sendall, args=(sent[at],)).start()
            for at, client in enumerate(clients):
                got = b""
                while len(got) < len(sent[at]):
                    got += client.recv(1 << 16)
                assert got == sent[at]
            clients[0].close()
            assert served[0].recv(1) == b""
            served[1].close()
            assert clients[1].recv(1) == b""
            for left in (*clients, *served.values()):
                left.close()
        finally:
            ends.close()


def test_a_server_that_is_not_there_ends_the_connection(tmp_path: Path) -> None:
    """As it does without a tunnel, after the connect."""
    ends = Ends(tmp_path / "worker", tmp_path / "server")
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(tmp_path / "worker"))
            client.sendall(b"?")
            assert client.recv(1) == b""
    finally:
        ends.close()


class Alone:
    """One end, whose other side is this test."""

    def __init__(self, path: Path) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.taken = 0
        self.tunnel = Tunnel(
            str(path),
            listens=True,
            send=lambda number, data: self.sent.append((number, data)),
            credit=self._credit,
        )
        self.client = socket.socket(socket.AF_UNIX)
        self.client.connect(str(path))
        self.turn()

    def _credit(self, number: int, count: int) -> None:
        assert number == 1
        self.taken += count

    def ready(self) -> dict[int, int]:
        """What its descriptors are ready for."""
        poll = select.poll()
        for descriptor, events in self.tunnel.events().items():
            poll.register(descriptor, events)
        return dict(poll.poll(20))

    def turn(self) -> None:
        """Carry what has come."""
        self.tunnel.advance(self.ready())

    def close(self) -> None:
        """Close both sides."""
        self.client.close()
        self.tunnel.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    """An end of its own."""
    with contextlib.closing(Alone(tmp_path / "worker")) as alone:
        yield alone


def test_no_more_than_a_window_is_on_the_way(alone: Alone) -> None:
    """However much its client sends, until the other side has taken some."""
    whole = 3 * WINDOW_BYTES
    sending = threading.Thread(target=alone.client.sendall, args=(bytes(whole),))
    sending.start()
    told = 0
    while told < whole:
        for _ in range(2 * WINDOW_BYTES // READ_BYTES):
            alone.turn()
        sent = sum(len(data) for _, data in alone.sent)
        assert min(whole, told + WINDOW_BYTES) <= sent < told + WINDOW_BYTES + READ_BYTES
        alone.tunnel.take_credit(1, sent - told)
        told = sent
    sending.join()


def test_what_came_between_the_poll_and_the_turn_is_no_fault(alone: Alone) -> None:
    """A channel that could be written to has nothing to write any more."""
    alone.tunnel.take(1, bytes(1 << 20))
    ready = alone.ready() | dict.fromkeys(alone.tunnel.events(), select.POLLOUT)
    got = 0
    while got < 1 << 20:
        got += len(alone.client.recv(1 << 20))
        alone.tunnel.take(1, b"x") if got == 1 << 20 else alone.turn()
    alone.tunnel.advance(ready)
    assert alone.taken == (1 << 20) + 1


def test_a_client_that_leaves_what_is_on_its_way_ends_its_channel_alone(alone: Alone) -> None:
    """As one does whose process was killed."""
    alone.tunnel.take(1, bytes(4 << 20))
    alone.client.close()
    alone.turn()
    assert alone.sent == [(1, b"")]
    alone.turn()


def test_the_end_of_the_other_side_comes_behind_its_last_bytes(alone: Alone) -> None:
    """Where the client reads slowly."""
    alone.tunnel.take(1, bytes(2 << 20))
    alone.tunnel.take(1, b"")
    got = 0
    while data := alone.client.recv(1 << 16):
        got += len(data)
        alone.turn()
    assert got == 2 << 20
