"""Clients and servers in a forked child, which has none of their threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import StaleError
from forebay.tensor import TensorClient, TensorServer
from tests.blockio.test_fork import in_child
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, serving, until, url_in


def test_a_child_is_refused_and_makes_its_own(
    tmp_path: Path, shards: int, client: TensorClient
) -> None:
    """A worker forked in mid-training disturbs neither its parent nor the server."""
    assert same(client.pull("table"), TABLE)
    client.submit("pull", "table").result(PATIENCE_S)
    plan = client.plan(["table"])
    assert in_child(lambda: _child(client, plan, url_in(tmp_path), shards)) == 0
    assert same(client.pull("table"), TABLE)
    assert same(client.submit("pull", "table", 3).result(PATIENCE_S), TABLE[3])


def _child(client: TensorClient, plan: Any, url: str, shards: int) -> None:
    for call in (
        lambda: client.pull("table"),
        lambda: client.push("table", 0, 1),
        lambda: client.submit("pull", "table"),
        lambda: client.pull_each(["table"]),
        plan.pull,
    ):
        with pytest.raises(StaleError, match="forked"):
            call()
    client.close()
    with TensorClient(url, shards=shards) as own:
        assert same(own.pull("table"), TABLE)
        assert same(own.submit("pull", "table", 3).result(PATIENCE_S), TABLE[3])


def test_a_child_of_an_event_loop(tmp_path: Path, shards: int, servers: Any) -> None:
    """The loop's connections are its own; a child has a loop and a client of its own."""

    async def main() -> None:
        async with TensorClient(url_in(tmp_path), shards=shards) as face:
            assert same(await face.pull("table"), TABLE)
            under_way = [asyncio.create_task(face.pull("table", 3)) for _ in range(5)]
            await asyncio.sleep(0)
            child = partial(_child_of_a_loop, face, url_in(tmp_path), shards)
            assert in_child(partial(_outside, child)) == 0
            assert all(same(each, TABLE[3]) for each in await asyncio.gather(*under_way))
            assert same(await face.pull("table"), TABLE)

    asyncio.run(main())


def _outside(act: Any) -> None:
    """Run a coroutine in a forked child, which stands inside of the parent's loop."""
    asyncio._set_running_loop(None)
    asyncio.run(act())


async def _child_of_a_loop(face: Any, url: str, shards: int) -> None:
    for call in (face.pull, face.tensor):
        with pytest.raises(StaleError, match="forked"):
            await call("table")
    with pytest.raises(StaleError, match="forked"):
        async with face.client:
            pass
    await face.aclose()
    async with TensorClient(url, shards=shards) as own:
        assert same(await own.pull("table"), TABLE)
        await own.push("table", 0, TABLE[0])


def test_a_fork_while_transfers_are_under_way(tmp_path: Path) -> None:
    """Whatever threads, futures and the server are at, it goes on, and the child is refused."""
    content = np.arange(1 << 20, dtype="f4").reshape(64, -1)
    over = threading.Event()
    with (
        serving(tmp_path, {"large": content, "sums": np.zeros((4, 4), "f8")}),
        TensorClient(url_in(tmp_path), shards=1, piece_bytes="64KiB") as client,
        ThreadPoolExecutor() as threads,
    ):

        def pull() -> int:
            pulled = 0
            while not over.is_set():
                assert same(client.pull("large"), content)
                futures = [client.submit("pull", "large", slice(at, at + 9)) for at in range(4)]
                for at, future in enumerate(futures):
                    assert same(future.result(PATIENCE_S), content[at : at + 9])
                pulled += 5
            return pulled

        def push() -> int:
            pushed = 0
            while not over.is_set():
                client.push("sums", None, 1, "add")
                pushed += 1
            return pushed

        busy = [threads.submit(pull), threads.submit(pull), threads.submit(push)]
        try:
            for _ in range(12):
                until(lambda: client.metrics().get("outstanding", 0) > 0)
                assert in_child(partial(_refused, client)) == 0
        finally:
            over.set()
        assert all(each.result(PATIENCE_S) > 0 for each in busy)
        assert (client.pull("sums") == busy[2].result()).all()


def _refused(client: TensorClient) -> None:
    for call in (client.pull, client.tensor):
        with pytest.raises(StaleError, match="forked"):
            call("large")
    with pytest.raises(StaleError, match="forked"):
        client.push("large", 0, 0)
    client.close()


def test_a_childs_server_is_no_server(servers: list[TensorServer]) -> None:
    """Its thread stayed with the parent."""

    def child() -> None:
        with pytest.raises(StaleError):
            servers[0].publish("other", TABLE)

    assert in_child(child) == 0
    assert servers[0].describe()["tensors"].keys() == {"table"}
