"""Connections carried over a link: bytes in order, both ends, a server that is not there."""

from __future__ import annotations

import select
import socket
import threading
from pathlib import Path

from forebay.executor.engine.tunnel import Tunnel


class Ends:
    """Both tunnels of a link, in one thread."""

    def __init__(self, worker: Path, server: Path) -> None:
        self._near = Tunnel(str(worker), listens=True, send=self._to_far)
        self._far = Tunnel(str(server), listens=False, send=self._to_near)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _to_far(self, number: int, data: bytes) -> None:
        self._far.take(number, data)

    def _to_near(self, number: int, data: bytes) -> None:
        self._near.take(number, data)

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
