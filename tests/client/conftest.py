"""Servers and clients of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay_client import Client
from tests.client.scripted_server import ScriptedServer, scripted
from tests.client.tunnel import Tunnel
from tests.transport.certificates import Authority

TOKEN = f"fb_{'t0-k_' * 8}end"
"""Of the form that every token has."""


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A throw-away CA."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[ScriptedServer]:
    """A server with TLS whose answers a test says."""
    signed = authority.sign("server")
    with scripted(signed.cert, signed.key) as server:
        yield server


@pytest.fixture
def client(server: ScriptedServer, authority: Authority) -> Iterator[Client]:
    """A client of it."""
    with Client(server.url, TOKEN, ca_file=authority.ca, timeout=5.0) as client:
        yield client


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    """A proxy."""
    tunnel = Tunnel()
    yield tunnel
    tunnel.close()
