"""Event loops and their tasks: each loop has a face, and each task leaves it to the others."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from forebay.errors import ClosedError
from forebay.tensor import TensorClient, TensorServer
from tests.tensor.conftest import TABLE
from tests.tensor.contents import same
from tests.tensor.shards import PATIENCE_S, until, url_in

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def factory(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """What makes loops."""
    made: Callable[[], Any] = LOOPS[request.param]
    return made


def run(factory: Callable[[], Any], main: Callable[[], Any]) -> Any:
    """Run in a new loop, in debug mode."""
    with asyncio.Runner(debug=True, loop_factory=factory) as runner:
        return runner.run(main())


def connections(servers: list[TensorServer]) -> int:
    """How many connections the servers have."""
    return sum(server.metrics()["peers"] for server in servers)


@pytest.mark.parametrize("first", [0, 1], ids=["first out", "last out"])
def test_tasks_leave_in_any_order(
    client: TensorClient, servers: list[TensorServer], factory: Callable[[], Any], first: int
) -> None:
    """A worker that ends takes nothing from the one beside it."""

    async def main() -> None:
        entered = asyncio.Barrier(2)
        left = asyncio.Event()

        async def worker(number: int) -> None:
            async with client as face:
                await entered.wait()
                if number != first:
                    await left.wait()
                for _ in range(3):
                    assert same(await face.pull("table"), TABLE)
            left.set()

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            for number in range(2):
                tasks.create_task(worker(number))

    run(factory, main)
    until(lambda: connections(servers) == 0)


def test_a_loop_is_entered_again(client: TensorClient, factory: Callable[[], Any]) -> None:
    """Nested, one after the other, and after its face was closed by hand."""

    async def main() -> None:
        async with client as outer:
            async with client as inner:
                assert inner is outer
            assert same(await outer.pull("table"), TABLE)
            await outer.aclose()
            with pytest.raises(ClosedError):
                await outer.pull("table")
            async with client as again:
                assert same(await again.pull("table"), TABLE)
            with pytest.raises(ClosedError):
                await outer.pull("table")
        assert again.closed
        with pytest.raises(ClosedError):
            await client.__aenter__()

    run(factory, main)


def test_two_loops_in_two_threads(client: TensorClient, factory: Callable[[], Any]) -> None:
    """Each leaves its own, whoever entered last."""
    entered = threading.Barrier(2)
    left = threading.Event()

    async def worker(number: int) -> None:
        async with client as face:
            assert same(await face.pull("table"), TABLE)
            await asyncio.to_thread(entered.wait, PATIENCE_S)
            if number == 1:
                assert await asyncio.to_thread(left.wait, PATIENCE_S)
            for _ in range(20):
                assert same(await face.pull("table", number), TABLE[number])
        assert face.closed
        left.set()

    with ThreadPoolExecutor() as threads:
        done = [threads.submit(run, factory, lambda n=number: worker(n)) for number in range(2)]
        for each in done:
            each.result(PATIENCE_S)


def test_leaving_the_last_loop_closes_what_threads_use(
    client: TensorClient, servers: list[TensorServer], factory: Callable[[], Any]
) -> None:
    """`async with` closes the client as `with` does; threads use it until then."""
    plan = client.plan(["table"])
    assert same(client.submit("pull", "table", 3).result(PATIENCE_S), TABLE[3])

    async def main() -> None:
        async with client as outer:
            async with client:
                assert same(await outer.pull("table"), TABLE)
            assert same(client.pull("table"), TABLE)
            assert same(plan.pull()[0], TABLE)

    run(factory, main)
    until(lambda: connections(servers) == 0)
    assert client.metrics()["connections"] == 0
    for use in (lambda: client.pull("table"), lambda: client.submit("pull", "table"), plan.pull):
        with pytest.raises(ClosedError):
            use()
    with pytest.raises(ClosedError):
        run(factory, main)


def test_nothing_is_left_of_a_client_of_loops(tmp_path: Path, servers: Any, shards: int) -> None:
    """A client that is only awaited needs no `close`."""
    held = set()
    for _ in range(3):
        client = TensorClient(url_in(tmp_path), shards=shards)

        async def main(client: TensorClient = client) -> None:
            async with client as face:
                assert same(await face.pull("table"), TABLE)

        asyncio.run(main())
        until(lambda: connections(servers) == 0)
        held.add(len(os.listdir("/proc/self/fd")))
    assert len(held) == 1
