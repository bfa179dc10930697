"""The wait for a node: strangers keep none out, and are let go of. The test is agent and node."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.executor.engine import engagement
from forebay.executor.engine.engagement import PROVING_MAX, engage
from forebay.executor.engine.link import READY, Link, prove_worker
from forebay.executor.engine.order import Certificates, Order, Place
from tests.dask.certificates import sign_for

HOST = "127.0.0.1"
TOLD = {"pid": 7, "host": "a node"}
SOON_S = 5.0
"""Less than the time of a proof."""


class Waiting:
    """A stand-in that waits for a node, in a thread."""

    def __init__(self, folder: Path, certificates: Certificates | None) -> None:
        self._agent = socket.socket(socket.AF_UNIX)
        self._agent.bind(str(folder / "agent"))
        self._agent.listen()
        self._place = Place(str(folder / "agent"), HOST, certificates, 30.0)
        self._told: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._asking, _ = self._agent.accept()
        self.order = Order.of(json.loads(self._asking.makefile().readline()))

    def _run(self) -> None:
        link, asking, told = engage(Order("file", "app.py", None, None), self._place)
        self._told.append(told)
        link.close()
        asking.close()

    def connected(self) -> socket.socket:
        """Somebody who has connected."""
        connected = socket.create_connection((HOST, self.order.port), SOON_S)
        connected.settimeout(SOON_S)
        return connected

    def prove(self, connected: socket.socket) -> Link:
        """Have somebody prove itself to be the node."""
        prove_worker(connected, bytes.fromhex(self.order.secret), SOON_S)
        return Link(connected, "the stand-in", 30.0)

    def told(self, node: Link) -> dict[str, Any]:
        """What the stand-in has taken of the node."""
        node.put(READY, 0, json.dumps(TOLD).encode())
        node.flush()
        self._thread.join(SOON_S)
        assert self._told
        return self._told[0]

    def close(self) -> None:
        """End the wait, if it still goes on."""
        if not self._told:
            with self.connected() as connected, contextlib.suppress(OSError):
                self.told(self.prove(connected))
        self._thread.join()
        self._asking.close()
        self._agent.close()


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    """Without TLS."""
    with contextlib.closing(Waiting(tmp_path, None)) as waiting:
        yield waiting


@contextlib.contextmanager
def dripping(strangers: list[socket.socket]) -> Iterator[None]:
    """Strangers who send a byte now and then."""
    is_over = threading.Event()

    def drip() -> None:
        while not is_over.wait(0.05):
            for stranger in strangers:
                with contextlib.suppress(OSError):
                    stranger.send(b"\x16")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def is_let_go(stranger: socket.socket) -> bool:
    """Whether the stand-in has closed the connection; waits for that."""
    try:
        while stranger.recv(1 << 10):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_strangers_keep_no_node_out(waiting: Waiting) -> None:
    """Silent ones, and ones that begin a proof; more than there is room for."""
    with contextlib.ExitStack() as left:
        strangers = [left.enter_context(waiting.connected()) for _ in range(PROVING_MAX + 4)]
        for stranger in strangers[1::2]:
            stranger.send(b"x" * 8)
        assert is_let_go(strangers[0]), "the oldest makes room"
        begun = time.monotonic()
        node = waiting.prove(left.enter_context(waiting.connected()))
        assert waiting.told(node) == TOLD
        assert time.monotonic() - begun < SOON_S
        assert is_let_go(strangers[-1])


def test_a_stranger_that_drips_has_no_more_time(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is that of the whole proof, not of a piece of it."""
    monkeypatch.setattr(engagement, "PROOF_S", 0.3)
    silent, slow = waiting.connected(), waiting.connected()
    begun = time.monotonic()
    with silent, slow, dripping([slow]):
        assert is_let_go(silent)
        assert is_let_go(slow)
        # Its 64 bytes would have taken longer.
        assert time.monotonic() - begun < 1.5


def test_one_that_waits_while_another_one_starts_has_its_time_then(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster has run the task again, and the first node is lost."""
    monkeypatch.setattr(engagement, "PROOF_S", 1.0)
    second = waiting.connected()
    first = waiting.connected()
    with second:
        with first:
            waiting.prove(first)
            time.sleep(1.2)  # the second one's time, if it passed
        assert waiting.told(waiting.prove(second)) == TOLD


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Of a cluster."""
    sign_for(tmp_path, "node")
    return Certificates(
        str(tmp_path / "tls-ca-cert.pem"),
        str(tmp_path / "node-cert.pem"),
        str(tmp_path / "node-key.pem"),
    )


def test_with_tls_strangers_keep_no_node_out(tmp_path: Path, certificates: Certificates) -> None:
    """Nor do those who never end the handshake, or know the secret without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates.ca)
    wrap: Callable[[socket.socket], socket.socket] = context.wrap_socket
    waiting = Waiting(tmp_path, certificates)
    with waiting.connected() as silent, waiting.connected() as slow, dripping([slow]):
        with contextlib.ExitStack() as left:
            with pytest.raises(Exception, match=r"gone|EOF|alert|reset") as refused:
                waiting.prove(left.enter_context(wrap(waiting.connected())))
            assert not isinstance(refused.value, TimeoutError)
        context.load_cert_chain(certificates.cert, certificates.key)
        with wrap(waiting.connected()) as node:
            assert waiting.told(waiting.prove(node)) == TOLD
        assert is_let_go(silent)
    waiting.close()
