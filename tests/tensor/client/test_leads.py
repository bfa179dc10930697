"""Who receives what comes, where a caller does other things meanwhile."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import DeadlineError
from forebay.tensor import TensorClient
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, ServerProcess, until, url_in

PULLS = [("table", slice(row, row + 4)) for row in range(0, 96, 4)]


def test_the_body_of_pull_each_may_use_the_client(client: TensorClient) -> None:
    """Pushes and pulls while others are on their way, whoever drives the connections."""
    seen = []
    for number, rows in client.pull_each(PULLS):
        assert same(rows, TABLE[number * 4 : number * 4 + 4])
        client.push("table", 99, float(number), timeout=PATIENCE_S)
        assert client.pull("table", 99, timeout=PATIENCE_S)[0] == number
        assert same(client.submit("pull", "table", 98).result(PATIENCE_S), TABLE[98])
        seen.append(number)
    assert sorted(seen) == list(range(len(PULLS)))


def test_two_of_pull_each_at_once(client: TensorClient) -> None:
    """One is suspended while the other goes on."""
    for (one, first), (other, second) in zip(
        client.pull_each(PULLS), client.pull_each(PULLS), strict=True
    ):
        assert same(first, TABLE[one * 4 : one * 4 + 4])
        assert same(second, TABLE[other * 4 : other * 4 + 4])


def test_a_callback_may_wait(client: TensorClient) -> None:
    """It runs in the thread that drives futures, and waits for a call of its own."""
    client.pull("table", 0)  # so that submit has no name to look up
    told: Future[float] = Future()

    def wait_for_more(_: Future[Any]) -> None:
        try:
            client.push("table", 7, 3.5, timeout=PATIENCE_S)
            told.set_result(client.pull("table", 7, timeout=PATIENCE_S)[0])
        except BaseException as error:
            told.set_exception(error)

    waiting = [client.submit("pull", "table") for _ in range(50)]
    waiting[0].add_done_callback(wait_for_more)
    assert told.result(PATIENCE_S) == 3.5
    for future in waiting:
        assert future.result(PATIENCE_S).shape == TABLE.shape


@pytest.mark.parametrize("process", ["unix"], indirect=True)
def test_a_consumer_may_take_its_time(process: ServerProcess) -> None:
    """Longer than a server waits for a client that takes nothing: 5 s."""
    with TensorClient(process.url) as client:
        pulls = client.pull_each(["large"] * 16)  # 64 MiB, more than sockets keep
        next(pulls)
        time.sleep(6)
        assert len(list(pulls)) == 15


def test_what_was_given_up_comes_back_by_itself(process: ServerProcess) -> None:
    """Of a server that stopped, though the client is not used again: with the liveness."""
    arena = forebay.Arena("64MiB")
    with TensorClient(process.url, arena=arena, liveness=0.5) as client:
        client.tensor("large")
        process.stop()
        with pytest.raises(DeadlineError):
            client.pull("large", timeout=0.05)
        assert arena.stats()["quarantined_bytes"] >= 4 << 20
        until(lambda: arena.stats()["quarantined_bytes"] == 0)


def test_what_was_given_up_comes_back_while_the_main_thread_sleeps(process: ServerProcess) -> None:
    """A late answer's memory must not wait for a main thread that waits for its workers."""
    arena = forebay.Arena("64MiB")

    def work() -> None:
        with TensorClient(process.url, arena=arena) as client:
            client.tensor("large")
            process.stop()
            with pytest.raises(DeadlineError):
                client.pull("large", timeout=0.05)
            assert arena.stats()["quarantined_bytes"] >= 4 << 20
            process.go_on()
            until(lambda: arena.stats()["quarantined_bytes"] == 0)

    with ThreadPoolExecutor() as threads:
        threads.submit(work).result()


def test_pull_each_keeps_its_client(tmp_path: Path, servers: Any, shards: int) -> None:
    """A generator of which nothing else is left goes on to its end."""
    pulls = TensorClient(url_in(tmp_path), shards=shards).pull_each(PULLS)
    assert sorted(number for number, _ in pulls) == list(range(len(PULLS)))
