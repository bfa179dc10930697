"""Servers and clients for the tests of `forebay.tensor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio import Queue, set_default_queue
from forebay.tensor import TensorClient, TensorServer
from tests.tensor.faces import FACES, Face, face_of
from tests.tensor.shards import ServerProcess, serving, url_in

TABLE = np.arange(1000, dtype="f4").reshape(100, 10)


@pytest.fixture(autouse=True)
def fabric(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Go by connections, where a test is not also about memory that both map."""
    chosen: str = getattr(request, "param", "stream")
    monkeypatch.setenv("FOREBAY_TENSOR_FABRIC", chosen)
    return chosen


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def shards(request: pytest.FixtureRequest) -> int:
    """How many shards there are."""
    count: int = request.param
    return count


@pytest.fixture
def servers(tmp_path: Path, shards: int) -> Iterator[list[TensorServer]]:
    """Serve one table of 100 rows, by one shard and by several."""
    with serving(tmp_path, {"table": TABLE}, shards) as servers:
        yield servers


@pytest.fixture
def client(tmp_path: Path, shards: int, servers: list[TensorServer]) -> Iterator[TensorClient]:
    """Connect to that table."""
    with TensorClient(url_in(tmp_path), shards=shards) as client:
        yield client


@pytest.fixture(params=FACES)
def face(
    request: pytest.FixtureRequest, tmp_path: Path, shards: int, servers: list[TensorServer]
) -> Iterator[Face]:
    """Connect to that table by each face."""
    with face_of(request.param, url_in(tmp_path), shards=shards) as face:
        yield face


@pytest.fixture(params=["unix", "tcp"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """Serve from a process that may be killed."""
    url = f"unix://{tmp_path}/server.sock" if request.param == "unix" else "tcp://127.0.0.1:0"
    process = ServerProcess(url)
    yield process
    process.kill()


@pytest.fixture
def queue_of_the_test() -> Iterator[None]:
    """Have record files use a queue that ends with the test."""
    with Queue() as queue:
        set_default_queue(queue)
        yield
        set_default_queue(None)
