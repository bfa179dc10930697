"""Fixtures of a small server and a client of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor._client import Client
from tests.executor.small_server import SmallServer


@pytest.fixture
def server() -> Iterator[SmallServer]:
    """A server that runs nothing; its directory has a short path, as sockets want."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        server = SmallServer(Path(directory))
        yield server
        server.kill()


@pytest.fixture
def client(server: SmallServer) -> Iterator[Client]:
    """A client of it."""
    with Client(server.url, timeout=20.0) as client:
        yield client
