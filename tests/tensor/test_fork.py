"""Clients and servers in a forked child, which has none of their threads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import StaleError
from forebay.tensor import TensorClient, TensorServer
from tests.blockio.test_fork import in_child
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, url_in


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
    """The loop's connections are its own."""

    async def main() -> None:
        async with TensorClient(url_in(tmp_path), shards=shards) as client:
            assert same(await client.pull("table"), TABLE)
            assert in_child(lambda: None) == 0
            assert same(await client.pull("table"), TABLE)

    asyncio.run(main())


def test_a_childs_server_is_no_server(servers: list[TensorServer]) -> None:
    """Its thread stayed with the parent."""

    def child() -> None:
        with pytest.raises(StaleError):
            servers[0].publish("other", TABLE)

    assert in_child(child) == 0
    assert servers[0].describe()["tensors"].keys() == {"table"}
