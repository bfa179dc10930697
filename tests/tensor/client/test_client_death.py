"""Client processes that are killed or stopped in mid-transfer: the server has all of it back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from forebay.memory import Arena
from forebay.tensor import Tensor, TensorClient, TensorServer
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, ROOT, state_of, until

SILENCE = "1"
"""Seconds after which the server gives up a client that takes or sends nothing."""

SMALL = np.arange(40, dtype="f4").reshape(10, 4)
LARGE = Tensor((64, 16_384))
LARGE_BYTES = 64 * 16_384 * 4

POINTS = (0, 30_000, 700_000, 5_000_000, 20_000_001)
"""How many bytes of its transfers have gone when a client dies: none, parts, and several whole."""

URLS = ("unix", "tcp")


class Served:
    """A server of this process, and a client that goes on beside those that die.

    Attributes:
        arena: where its tensors lie.
        descriptors: of this process while nobody else is connected.
        server: the server.
    """

    def __init__(self, server: TensorServer, arena: Arena) -> None:
        self.server = server
        self.arena = arena
        self.descriptors = 0

    def moved(self) -> int:
        """Bytes that came and went."""
        metrics = self.server.metrics()
        return int(metrics["sent_bytes"]) + int(metrics["received_bytes"])

    def alone(self) -> bool:
        """Whether the client that goes on is the only one, and nothing is held for another."""
        return self.server.metrics()["peers"] == 1

    def wait_for(self, count: int) -> None:
        """Wait until so many bytes more have come and gone."""
        end = self.moved() + count
        until(lambda: self.moved() >= end)

    def check_memory_comes_back(self) -> None:
        """A tensor that was in use goes back once it is replaced."""
        self.server.publish("large", LARGE)
        until(lambda: self.arena.stats()["live_bytes"] == SMALL.nbytes + LARGE_BYTES)

    def check_descriptors(self) -> None:
        """What was opened for clients is closed."""
        until(lambda: len(os.listdir("/proc/self/fd")) == self.descriptors)


class Dying:
    """A client in a process of its own."""

    def __init__(self, url: str, method: str) -> None:
        command = [sys.executable, "-m", "tests.tensor.client.client_program", url, method]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        with self._process.stdout as out:
            assert out.readline() == "ready\n", "the client did not start"
        self.pid = self._process.pid

    def send(self, number: int) -> None:
        """Send a signal; returns once it has been obeyed."""
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:
            until(lambda: state_of(self.pid) == "T")

    def end(self) -> None:
        """Kill it. Idempotent."""
        self._process.kill()
        self._process.wait(PATIENCE_S)


@pytest.fixture(params=URLS)
def served(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    """Serve, with a client that pulls and pushes all the time, and whose answers are right."""
    monkeypatch.setenv("FOREBAY_TENSOR_LIVENESS", SILENCE)
    url = f"unix://{tmp_path}/0.sock" if request.param == "unix" else "tcp://127.0.0.1:0"
    with (
        Arena("256MiB") as arena,
        TensorServer({"small": SMALL, "large": LARGE}, url, arena=arena) as server,
        going_on(server.url),
    ):
        served = Served(server, arena)
        served.descriptors = len(os.listdir("/proc/self/fd"))
        yield served


@contextmanager
def going_on(url: str) -> Iterator[None]:
    """A thread beside it all: each of its calls is answered, and rightly."""
    over = threading.Event()
    failures: list[BaseException] = []
    calls = [0]

    def use() -> None:
        try:
            with TensorClient(url, liveness=1000) as client:
                while not over.wait(0.001):
                    client.push("small", 3, SMALL[3], timeout=PATIENCE_S)
                    assert same(client.pull("small", timeout=PATIENCE_S), SMALL)
                    calls[0] += 1
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        until(lambda: bool(failures) or calls[0] > 0)
        yield
        before = calls[0]
        until(lambda: bool(failures) or calls[0] > before)  # it has not been held up
    finally:
        over.set()
        thread.join()
    assert not failures


@pytest.mark.parametrize("method", ["pull", "push"])
def test_a_killed_client_leaves_nothing(served: Served, method: str) -> None:
    """Its connection, its requests and what was kept for them are the server's again, at once."""
    for point in POINTS:
        dying = Dying(served.server.url, method)
        try:
            served.wait_for(point)
            dying.send(signal.SIGKILL)
            until(served.alone)
            check_rows(served.server)
            served.check_memory_comes_back()
            served.check_descriptors()
        finally:
            dying.end()


@pytest.mark.parametrize("method", ["pull", "push"])
def test_a_stopped_client_holds_nothing(served: Served, method: str) -> None:
    """What it was answered with, or had half sent, is the server's again without its help.

    Where the kernel has all of its answers, or it stopped behind a whole push, it owes nothing and
    stays connected; else it is given up. Memory comes back in either case.
    """
    for point in POINTS[1::2]:
        dying = Dying(served.server.url, method)
        try:
            served.wait_for(point)
            dying.send(signal.SIGSTOP)
            served.check_memory_comes_back()
            assert state_of(dying.pid) == "T"
            dying.send(signal.SIGKILL)
            until(served.alone)
            check_rows(served.server)
            served.check_descriptors()
        finally:
            dying.end()


def test_many_clients_die_at_once(served: Served) -> None:
    """Some killed, some stopped, while they use the same rows."""
    dying = [Dying(served.server.url, method) for method in ("pull", "push", "pull", "push")]
    try:
        served.wait_for(4 * LARGE_BYTES)
        for client, number in zip(dying, [signal.SIGSTOP, signal.SIGKILL] * 2, strict=True):
            client.send(number)
        served.check_memory_comes_back()
        for client in dying[::2]:
            client.send(signal.SIGKILL)
        until(served.alone)
        check_rows(served.server)
        served.check_descriptors()
    finally:
        for client in dying:
            client.end()


def check_rows(server: TensorServer) -> None:
    """A row is of one push, however many pieces that push had, and however few of them came."""
    rows = server.array("large")
    assert (rows == rows[:, :1]).all()
