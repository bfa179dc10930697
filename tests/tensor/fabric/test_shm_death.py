"""Owners of shared memory that are killed or stopped at a bad moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from forebay.errors import BrokenError, DeadlineError
from forebay.tensor import TensorClient
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, ServerProcess, until

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
        heard = []

        def push() -> None:
            try:
                client.push("small", 0, 5)
            except BrokenError:
                heard.append(True)

        waiting = threading.Thread(target=push)
        waiting.start()
        until(lambda: client.metrics()["outstanding"] > 0)
        assert same(client.pull("small", 3), np.ones(4, "f4"))
        parent.kill()
        until(lambda: told(client, "small"))
        waiting.join(PATIENCE_S)
        assert heard


def stopped_in_a_write(writer: ServerProcess) -> None:
    """Stop the owner while it writes, which the fourth look of a pull from memory tells."""
    with TensorClient(writer.url, liveness=NEVER_S) as client:
        large = client.tensor("large")
        client.pull(large, 0)

        def is_writing() -> bool:
            writer.stop()
            before = client.metrics()["shm_busy"]
            with suppress(DeadlineError):
                client.pull(large, 0, timeout=0.05)
            if client.metrics()["shm_busy"] > before:
                return True
            writer.go_on()
            return False

        until(is_writing)


def test_an_owner_that_is_stopped_in_a_write(writer: ServerProcess) -> None:
    """Half of a write is nobody's to see: the stream is asked, and its liveness ends it."""
    with TensorClient(writer.url, liveness=SILENCE_S) as client:
        small, large = client.tensor("small"), client.tensor("large")
        out = client.pull(large)
        stopped_in_a_write(writer)
        assert same(client.pull(small), np.ones((10, 4), "f4"))  # nobody writes that
        with pytest.raises(BrokenError, match="sent nothing"):
            client.pull(large, None, out)
        writer.go_on()
        client.pull(large, None, out)
        assert (out == out[0, 0]).all()


def test_an_owner_that_is_killed_in_a_write(writer: ServerProcess) -> None:
    """Half of a write stays half: nobody gets it, and nobody waits for the rest."""
    with TensorClient(writer.url, liveness=NEVER_S, connect_timeout=0.5) as client:
        large = client.tensor("large")
        out = client.pull(large)
        stopped_in_a_write(writer)
        writer.kill()
        with pytest.raises(BrokenError):
            client.pull(large, None, out)
        until(lambda: told(client, "small"))


def test_pulls_beside_writes_of_another_process_are_of_one_version(writer: ServerProcess) -> None:
    """A reader sees a write wholly or not at all, whichever process writes."""
    with TensorClient(writer.url) as client:
        large = client.tensor("large")
        out = np.full((64, 16_384), -1, "f4")
        seen: set[float] = set()

        def have_met() -> bool:
            for _ in range(20):
                client.pull(large, None, out)
                assert (out == out[0, 0]).all()
                seen.add(float(out[0, 0]))
            return len(seen) > 50 and client.metrics()["shm_busy"] > 0

        until(have_met)
