"""Connections under TLS count from before their handshake, and no longer than they last."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from tests.executor.serving import until
from tests.gateway.http.http_serving import APP, HttpServing, received
from tests.transport.certificates import Authority

MAX = 20
"""Connections of one address."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    signed = authority.sign("gateway")
    app = directory / "app"
    app.mkdir()
    limits = {"FOREBAY_GATEWAY_MAX_CONNECTIONS_PER_ADDRESS": str(MAX)}
    options = ("--tls-cert", str(signed.cert), "--tls-key", str(signed.key))
    serving = HttpServing(app, APP, *options, **limits)
    serving.tls = ssl.create_default_context(cafile=authority.ca)
    with serving:
        yield serving


pytestmark = pytest.mark.leaks(reason="the server of the module is there until its last test")


def test_peers_that_say_nothing_are_within_the_limit(serving: HttpServing) -> None:
    """One address cannot have all descriptors by never shaking hands."""
    with contextlib.ExitStack() as open_:
        silent = [open_.enter_context(serving.raw()) for _ in range(MAX)]
        with serving.raw() as one_more:
            one_more.settimeout(5)
            assert one_more.recv(1) == b""
        assert health_from("127.0.0.2", serving) == 200
        assert all(map(is_open, silent))
    until(lambda: answers(serving))


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b""])
def test_a_handshake_that_fails_leaves_its_place(serving: HttpServing, sent: bytes) -> None:
    """However many have failed, the next one has the same room."""
    for _ in range(3 * MAX):
        with serving.raw() as broken, contextlib.suppress(OSError):
            broken.sendall(sent)
            broken.shutdown(socket.SHUT_WR)
            received(broken)
    until(lambda: answers(serving))
    with contextlib.ExitStack() as open_:
        for _ in range(MAX):
            raw = open_.enter_context(serving.raw())
            open_.enter_context(encrypted(raw, serving))


def test_a_connection_counts_once(serving: HttpServing) -> None:
    """During its handshake and after it."""
    for _ in range(3):
        with contextlib.ExitStack() as open_:
            for _ in range(MAX):
                open_.enter_context(encrypted(open_.enter_context(serving.raw()), serving))
            with serving.raw() as one_more:
                one_more.settimeout(5)
                assert one_more.recv(1) == b""
        until(lambda: answers(serving))


def encrypted(raw: socket.socket, serving: HttpServing) -> ssl.SSLSocket:
    assert serving.tls is not None
    return serving.tls.wrap_socket(raw, server_hostname="127.0.0.1")


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


def answers(serving: HttpServing) -> bool:
    """Whether there is room."""
    with contextlib.suppress(OSError):
        return serving.call("GET", "/healthz", token=None).status == 200
    time.sleep(0.05)
    return False


def health_from(address: str, serving: HttpServing) -> int:
    """What a client of another address is answered."""
    raw = socket.create_connection(("127.0.0.1", serving.port), 10, (address, 0))
    with encrypted(raw, serving) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return int(received(connection).split(b" ", 2)[1])
