"""Owners of shared memory that are killed or stopped at a bad moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import BrokenError, DeadlineError
from forebay.tensor import TensorClient
from tests.tensor.contents import same
from tests.tensor.shards import ServerProcess, until

pytestmark = pytest.mark.parametrize("fabric", ["auto"], indirect=True)

NEVER_S = 1000
"""A liveness that no test waits for: what ends earlier ended for another reason."""

SILENCE_S = 1.0


@pytest.fixture(params=["unix", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Listen there."""
    return f"unix://{tmp_path}/server.sock" if request.param == "unix" else "tcp://127.0.0.1:0"


@pytest.fixture
def parent(url: str) -> Iterator[ServerProcess]:
    """Serve, and fork when told to."""
    process = ServerProcess(url, does="fork")
    yield process
    process.kill()
    process.end_child()


@pytest.fixture
def writer(url: str) -> Iterator[ServerProcess]:
    """Serve, and write all the time."""
    process = ServerProcess(url, does="write")
    yield process
    process.kill()


def told(client: TensorClient, name: str) -> bool:
    """Whether a pull says that the server is gone."""
    try:
        client.pull(name, 0)
    except (BrokenError, DeadlineError):
        return True
    return False


def test_a_kill_is_told_though_a_child_has_the_sockets(parent: ServerProcess) -> None:
    """A socket that a child of the dead owner has open as well never ends; its process has."""
    with TensorClient(parent.url, liveness=NEVER_S, connect_timeout=0.5) as client:
        ref = client.tensor("small")
        assert same(client.pull(ref), np.ones((10, 4), "f4"))
        plan = client.plan([ref])
        assert same(plan.pull()[0], np.ones((10, 4), "f4"))
        parent.fork()
        assert same(client.pull(ref), np.ones((10, 4), "f4"))
        parent.kill()
        until(lambda: told(client, "small"))
        with pytest.raises((BrokenError, DeadlineError)):
            client.pull(ref)
        with pytest.raises((BrokenError, DeadlineError)):
            plan.pull()


def test_what_is_with_a_killed_server_ends_though_a_child_has_the_sockets(
    parent: ServerProcess,
) -> None:
    """Whoever waits for an answer hears of it by whoever pulls from memory."""
    with TensorClient(parent.url, liveness=NEVER_S, connect_timeout=0.5) as client:
        assert same(client.pull("small"), np.ones((10, 4), "f4"))
        parent.fork()
        parent.stop()
        future = client.submit("push", "small", 0, 5)
        until(lambda: client.metrics()["outstanding"] > 0)
        assert same(client.pull("small", 3), np.ones(4, "f4"))
        parent.kill()
        until(lambda: told(client, "small"))
        with pytest.raises(BrokenError):
            future.result(30)
