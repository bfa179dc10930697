"""Futures of pulls and pushes: their thread, their callbacks, their ends."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ConfigError, OutOfRangeError
from forebay.tensor import TensorClient
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, until, url_in


def serving() -> list[threading.Thread]:
    """Threads that complete futures."""
    return [one for one in threading.enumerate() if one.name == "forebay-tensor-futures"]


def test_all_clients_share_one_thread(tmp_path: Path, shards: int, servers: Any) -> None:
    """A thread for each client would cost more than its pulls; it ends with the last of them."""
    clients = [TensorClient(url_in(tmp_path), shards=shards) for _ in range(3)]
    for client in clients:
        assert same(client.submit("pull", "table", 3).result(PATIENCE_S), TABLE[3])
    assert len(serving()) == 1
    for client in clients[:2]:
        client.close()
    assert len(serving()) == 1
    assert same(clients[2].submit("pull", "table", 4).result(PATIENCE_S), TABLE[4])
    clients[2].close()
    assert serving() == []


def test_a_client_that_is_dropped_lets_the_thread_end(
    tmp_path: Path, shards: int, servers: Any
) -> None:
    """Also what nobody closed leaves nothing behind; its futures are completed first."""
    client = TensorClient(url_in(tmp_path), shards=shards)
    future = client.submit("pull", "table")
    del client
    gc.collect()
    assert same(future.result(PATIENCE_S), TABLE)
    del future
    until(lambda: gc.collect() >= 0 and not serving())


def test_many_threads_submit_at_once(client: TensorClient) -> None:
    """Each gets its own rows."""
    found: list[bool] = []

    def submit(first: int) -> None:
        futures = [client.submit("pull", "table", [row, 99 - row]) for row in range(first, 100, 4)]
        for row, future in zip(range(first, 100, 4), futures, strict=True):
            found.append(same(future.result(PATIENCE_S), TABLE[[row, 99 - row]]))

    threads = [threading.Thread(target=submit, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert all(found)


def test_callbacks_may_use_the_client(client: TensorClient) -> None:
    """What is there starts what comes next, from the completing thread."""
    last: Future[Any] = Future()

    def follow(future: Future[Any]) -> None:
        row = int(future.result()[0, 0]) // 10
        if row < 20:
            client.submit("pull", "table", [row + 1]).add_done_callback(follow)
        else:
            last.set_result(row)

    client.submit("pull", "table", [0]).add_done_callback(follow)
    assert last.result(PATIENCE_S) == 20


def test_a_callback_may_close_the_client(tmp_path: Path, shards: int, servers: Any) -> None:
    """The thread does not wait for itself."""
    client = TensorClient(url_in(tmp_path), shards=shards)
    closed = threading.Event()

    def close(_: Future[Any]) -> None:
        client.close()
        closed.set()

    client.submit("pull", "table").add_done_callback(close)
    assert closed.wait(PATIENCE_S)
    until(lambda: not serving())


def test_what_is_wrong_is_told_by_the_call(client: TensorClient) -> None:
    """An argument that cannot be is told where it stands, not by a future."""
    with pytest.raises(OutOfRangeError):
        client.submit("pull", "table", 100)
    with pytest.raises(ConfigError, match="give one of pull, push, pull_many, push_many"):
        client.submit("close")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client.submit("pull")
    pushes = [client.submit("push", "table", [row], 1.0, "add") for row in range(50)]
    assert not wait(pushes, PATIENCE_S).not_done
    assert all(push.result() is None for push in pushes)
    assert same(client.pull("table", slice(0, 50)), TABLE[:50] + 1)


def test_a_program_that_ends_with_futures_open_ends(tmp_path: Path) -> None:
    """A daemon thread keeps no interpreter from ending."""
    program = (
        "from forebay.tensor import Tensor, TensorClient, TensorServer\n"
        f"server = TensorServer({{'a': Tensor((1000, 1000))}}, 'unix://{tmp_path}/s.sock')\n"
        "client = TensorClient(server.url)\n"
        "futures = [client.submit('pull', 'a') for _ in range(50)]\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.leaks(reason="pytest keeps the log's tracebacks, whose frames hold the client")
def test_a_callback_that_exits_ends_no_other_future(client: TensorClient) -> None:
    """SystemExit of one callback must not hang the futures of every client of the process."""

    def leave(_: Future[Any]) -> None:
        sys.exit(3)

    for row in range(20):
        future = client.submit("pull", "table", row)
        with contextlib.suppress(SystemExit):  # it is done already, and ends its caller
            future.add_done_callback(leave)
        assert same(future.result(PATIENCE_S), TABLE[row])
    assert len(serving()) == 1
    assert same(client.submit("pull", "table", 4).result(PATIENCE_S), TABLE[4])


class WithoutMemory(logging.Handler):
    """A log for whose lines there is no memory; notes when each came."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.came.append(time.monotonic())
        raise MemoryError


@pytest.fixture
def log_without_memory() -> Iterator[WithoutMemory]:
    """Have every line of the futures' log raise."""
    handler = WithoutMemory()
    log = logging.getLogger("forebay.tensor.client.futures")
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_want_of_memory_ends_no_thread_of_futures(
    client: TensorClient, log_without_memory: WithoutMemory
) -> None:
    """The one thread of all clients outlives a failure while it tells of one, and loses nothing."""
    assert same(client.submit("pull", "table", 3).result(PATIENCE_S), TABLE[3])
    futures = client._futures
    assert futures is not None
    failing = {"hear": 3, "sweep": 3}

    def fail(what: str) -> None:
        if threading.current_thread() is futures._thread and failing[what]:
            failing[what] -= 1
            raise MemoryError

    class Waiting(dict[int, Any]):
        def pop(self, *args: Any) -> Any:
            fail("hear")
            return super().pop(*args)

    class Open(set[Any]):
        def __iter__(self) -> Iterator[Any]:
            fail("sweep")
            return super().__iter__()

    futures._waiting, futures._open = Waiting(), Open()
    for row in range(20):
        assert same(client.submit("pull", "table", row).result(PATIENCE_S), TABLE[row])
    until(lambda: sum(failing.values()) == 0)
    assert len(serving()) == 1
    assert len(log_without_memory.came) == 6


def test_a_thread_of_futures_that_cannot_wait_lets_others_go_on(
    client: TensorClient, log_without_memory: WithoutMemory
) -> None:
    """What keeps failing must not take a processor, nor fill a disk with its log."""
    assert same(client.submit("pull", "table", 3).result(PATIENCE_S), TABLE[3])
    assert client._futures is not None
    port = client._futures.port.fileno()
    kept, other = os.dup(port), os.open("/dev/null", os.O_RDONLY)
    os.dup2(other, port, inheritable=False)
    try:
        future = client.submit("pull", "table", 4)  # it wakes the thread
        until(lambda: len(log_without_memory.came) > 3)
    finally:
        os.dup2(kept, port, inheritable=False)
        os.close(kept)
        os.close(other)
    came = log_without_memory.came
    assert min(later - earlier for earlier, later in pairwise(came)) > 0.09
    assert same(future.result(PATIENCE_S), TABLE[4])
    assert same(client.submit("pull", "table", 5).result(PATIENCE_S), TABLE[5])
