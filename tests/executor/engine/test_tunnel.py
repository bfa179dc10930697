"""Connections carried over a link: bytes in order, both ends, a server that is not there."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor.engine.tunnel import (
    ACCEPT_AGAIN_S,
    CHANNELS_MAX,
    NOTHING_MORE,
    READ_BYTES,
    WINDOW_BYTES,
    Tunnel,
)


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


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    """Both, between the paths `worker` and `server`."""
    with contextlib.closing(Ends(tmp_path / "worker", tmp_path / "server")) as ends:
        yield ends


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """The server's socket."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(10)
        listener.bind(str(tmp_path / "server"))
        listener.listen()
        yield listener


def connected_to(path: Path) -> socket.socket:
    """A client."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(str(path))
    return client


def send_until_refused(client: socket.socket) -> None:
    """Wait until a client learns that it is not read."""
    deadline = time.monotonic() + 10
    with contextlib.suppress(BrokenPipeError):
        while True:
            client.sendall(b"unread")
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.usefixtures("ends")
def test_a_server_that_reads_no_more_still_answers(tmp_path: Path, listener: socket.socket) -> None:
    """A take-over: else a parent loses the answers to what was accepted."""
    with connected_to(tmp_path / "worker") as client:
        client.sendall(b"submit")
        server, _ = listener.accept()
        with server:
            server.settimeout(10)
            assert server.recv(16) == b"submit"
            server.shutdown(socket.SHUT_RD)
            send_until_refused(client)
            answer = b"accepted" * WINDOW_BYTES  # more than everything between holds
            answering = threading.Thread(target=server.sendall, args=(answer,))
            answering.start()
            got = bytearray()
            while len(got) < len(answer):
                got += client.recv(1 << 20)
            assert got == answer
            answering.join()
        assert client.recv(1) == b""


@pytest.mark.usefixtures("ends")
def test_what_a_client_sent_before_it_left_is_read(tmp_path: Path, listener: socket.socket) -> None:
    """Even where an answer to it finds that it has left."""
    last = bytes(WINDOW_BYTES)
    with connected_to(tmp_path / "worker") as client:
        client.sendall(b"?")
        server, _ = listener.accept()
        assert server.recv(1) == b"?"
        client.sendall(last)
    with server:
        server.settimeout(10)
        with contextlib.suppress(BrokenPipeError):
            server.sendall(b"answer")
        got = 0
        while data := server.recv(1 << 16):
            got += len(data)
    assert got == len(last)


@pytest.mark.usefixtures("ends")
def test_the_client_that_speaks_first_needs_not_be_the_first(
    tmp_path: Path, listener: socket.socket
) -> None:
    """Channels open with their first bytes."""
    with connected_to(tmp_path / "worker") as one, connected_to(tmp_path / "worker") as other:
        for client in (other, one):
            client.sendall(b"?")
            server, _ = listener.accept()
            with server:
                server.sendall(b"!")
            assert client.recv(2) == b"!"
            assert client.recv(1) == b""


class Far:
    """The stand-in's end, whose other side is this test."""

    def __init__(self, path: Path) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.tunnel = Tunnel(
            str(path),
            listens=False,
            send=lambda number, data: self.sent.append((number, data)),
            credit=lambda number, count: None,
        )

    def turn(self) -> None:
        """Carry what has come."""
        poll = select.poll()
        for descriptor, events in self.tunnel.events().items():
            poll.register(descriptor, events)
        self.tunnel.advance(dict(poll.poll(20)))


def test_a_channel_that_has_ended_is_not_opened_again(
    tmp_path: Path, listener: socket.socket
) -> None:
    """Else the next server reads the middle of a message as its beginning."""
    far = Far(tmp_path / "server")
    with contextlib.closing(far.tunnel) as tunnel:
        tunnel.take(2, b"begin")
        listener.accept()[0].close()
        while not far.sent:
            far.turn()
        tunnel.take(2, b"middle")  # it was on its way
        assert far.sent == [(2, b"")]
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()
        tunnel.take(2, b"")
        tunnel.take(1, b"another")  # its client was accepted first
        server, _ = listener.accept()
        with server:
            assert server.recv(16) == b"another"
        assert not tunnel._ended


def test_a_channel_without_a_server_ends_once(tmp_path: Path) -> None:
    """And is forgotten with the other side's end, as one is that was never used."""
    far = Far(tmp_path / "nowhere")
    for data in (b"begin", b"middle", b""):
        far.tunnel.take(1, data)
    far.tunnel.take(2, b"")
    assert far.sent == [(1, b""), (2, b"")]
    assert not far.tunnel._ended
    assert not far.tunnel._channels


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


def test_a_client_is_not_read_when_nothing_is_taken(alone: Alone) -> None:
    """It gets what comes, and its end when that of the other side has come."""
    alone.client.sendall(b"on its way")
    alone.turn()
    alone.client.sendall(b"unread")
    ready = alone.ready()
    alone.tunnel.take_credit(1, NOTHING_MORE)
    alone.tunnel.advance(ready)  # of before
    with pytest.raises(BrokenPipeError):
        alone.client.sendall(b"unread")
    alone.tunnel.take(1, b"answer")
    assert alone.sent == [(1, b"on its way")]
    alone.tunnel.take(1, b"")
    assert alone.client.recv(16) == b"answer"
    assert alone.client.recv(16) == b""
    assert alone.sent[1:] == [(1, b"")]


def test_clients_wait_for_a_channel(tmp_path: Path) -> None:
    """Until one has ended at both ends."""
    with contextlib.ExitStack() as left:
        alone = left.enter_context(contextlib.closing(Alone(tmp_path / "worker")))
        for _ in range(CHANNELS_MAX):
            left.enter_context(connected_to(tmp_path / "worker"))
            alone.turn()
        assert len(alone.tunnel._channels) == CHANNELS_MAX
        assert not alone.ready(), "the last one waits, and nobody is woken for it"
        alone.client.close()
        alone.turn()
        assert alone.sent == [(1, b"")]
        assert not alone.ready()
        alone.tunnel.take(1, b"")
        alone.turn()
        assert CHANNELS_MAX + 1 in alone.tunnel._channels


@pytest.fixture
def no_descriptors() -> Iterator[None]:
    """This process can open none, until its limit is raised again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_descriptors_nothing_spins(
    alone: Alone, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The client waits until a channel has ended, or for a while."""
    with connected_to(tmp_path / "worker") as waiting:
        request.getfixturevalue("no_descriptors")
        alone.turn()
        assert not alone.ready(), "the listener is not polled"
        deadline = time.monotonic() + 10 * ACCEPT_AGAIN_S
        while not alone.ready():
            assert time.monotonic() < deadline, "it does not try again"
        alone.turn()
        assert not alone.ready()
        alone.client.close()
        alone.turn()
        alone.tunnel.take(1, b"")
        alone.turn()
        assert 2 in alone.tunnel._channels
        waiting.sendall(b"?")
        alone.turn()
        assert alone.sent == [(1, b""), (2, b"?")]
