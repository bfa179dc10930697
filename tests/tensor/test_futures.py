"""Futures of pulls and pushes: their thread, their callbacks, their ends."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
from concurrent.futures import Future, wait
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
