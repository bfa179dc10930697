"""What workers use of other systems is counted by their server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.executor.worker.pool import BOUNDS
from forebay.gateway.metrics.families import FAMILIES
from tests.executor.serving import Caller, Serving, wait_gone

SOURCE = """
import os
import time

import forebay

app = forebay.App("usage")
kept = []


class Echo(forebay.Service):
    def say(self, text: str) -> str:
        return text


@app.request(lane="short")
def nothing() -> int:
    return os.getpid()


@app.request(lane="short")
def use_pool(times: int = 1) -> int:
    for _ in range(times):
        with forebay.acquire(Echo) as echo:
            echo.say("hello")
    return os.getpid()


@app.request(lane="short")
def use_arena(count: int) -> int:
    from forebay.memory import Arena

    arena = Arena("64MiB")
    kept.append((arena, arena.allocate(count)))
    return os.getpid()


@app.request(lane="short")
def read_blocks(path: str, count: int) -> int:
    import array

    from forebay.blockio import BlockFile

    with BlockFile(path) as file:
        file.read_many(array.array("Q", [0] * count), bytearray(4096 * count))
    return os.getpid()


@app.request()
async def use_pool_async() -> int:
    async with forebay.acquire(Echo) as echo:
        await echo.say("hello")
    return os.getpid()


@app.request(lane="short")
def leave(code: int = 3) -> None:
    os._exit(code)
"""
PATIENCE_S = 15.0

Key = tuple[str, ...]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    with Serving(tmp_path, SOURCE, short_workers=1, long_workers=0, max_workers=2) as serving:
        yield serving


def metrics(caller: Caller) -> dict[Key, Any]:
    """Numbers by name and values of labels; of a histogram its buckets, sum and count."""
    told = caller.ask("metrics")
    return {
        (name, *labels.values()): numbers[0] if len(numbers) == 1 else numbers
        for kind in ("counters", "gauges", "histograms")
        for name, labels, *numbers in told[kind]
    }


def until(caller: Caller, key: Key, wanted: Any) -> dict[Key, Any]:
    """The metrics, once one of them is as wanted: workers tell theirs once a second."""
    deadline = time.monotonic() + PATIENCE_S
    while (now := metrics(caller))[key] != wanted:
        assert time.monotonic() < deadline, f"{key} is {now[key]}, not {wanted}"
        time.sleep(0.02)
    return now


def test_acquires_of_workers_are_counted_and_timed(server: Serving) -> None:
    """Nobody sees that requests wait for services."""
    acquires = ("forebay_pool_acquires_total", "server", "ok")
    with server.caller() as caller:
        caller.run("use_pool", times=3)
        seen = until(caller, acquires, 3)
        buckets, seconds, count = seen["forebay_pool_acquire_seconds", "server"]
        assert [bound for bound, _ in buckets] == list(BOUNDS)
        assert count == 3
        assert 0 < seconds < 60
        caller.run("use_pool", times=2)
        until(caller, acquires, 5)


def test_services_that_the_server_lends_are_counted(server: Serving) -> None:
    """A pool that is full is seen before anybody waits for it."""
    with server.caller() as caller:
        caller.run("use_pool")
        until(caller, ("forebay_pool_services", "server", "idle"), 1)


def test_acquires_of_asynchronous_requests_are_counted(server: Serving) -> None:
    """What runs in the async lane is seen as well."""
    with server.caller() as caller:
        caller.run("use_pool_async")
        until(caller, ("forebay_pool_acquires_total", "server", "ok"), 1)


@pytest.mark.parametrize("request_name", ["use_pool", "use_pool_async"])
def test_a_worker_that_leaves_tells_what_is_pending(tmp_path: Path, request_name: str) -> None:
    """Of workers that are replaced after a few runs, the use of the last second was lost."""
    limits = {"short_workers": 1, "long_workers": 0, "max_workers": 3, "max_worker_uses": 2}
    with Serving(tmp_path, SOURCE, **limits) as server, server.caller() as caller:
        first = caller.run(request_name)
        assert caller.run(request_name) == first, "told less than a second after the first one"
        until(caller, ("forebay_pool_acquires_total", "server", "ok"), 2)
        wait_gone(first)


def test_an_arena_goes_with_its_worker(server: Serving) -> None:
    """Memory of a worker that has died is shown for ever."""
    live = ("forebay_arena_bytes", "live")
    with server.caller() as caller:
        caller.run("use_arena", count=1_000_000)
        until(caller, live, 1_000_000)
        with pytest.raises(Exception, match="died"):
            caller.run("leave")
        until(caller, live, 0)


def test_counters_survive_their_worker(server: Serving, tmp_path: Path) -> None:
    """A counter that falls looks like a restart of the server."""
    path = tmp_path / "blocks"
    path.write_bytes(bytes(4096))
    with server.caller() as caller:
        caller.run("read_blocks", path=str(path), count=7)
        reads = [key for key, value in _reads(metrics(caller)).items() if value]
        deadline = time.monotonic() + PATIENCE_S
        while not reads and time.monotonic() < deadline:
            reads = [key for key, value in _reads(metrics(caller)).items() if value]
        (read,) = reads
        assert metrics(caller)[read] == 7
        with pytest.raises(Exception, match="died"):
            caller.run("leave")
        caller.run("read_blocks", path=str(path), count=2)
        until(caller, read, 9)


def _reads(seen: dict[Key, Any]) -> dict[Key, Any]:
    return {key: it for key, it in seen.items() if key[:2] == (_OPERATIONS, "read")}


_OPERATIONS = "forebay_blockio_operations_total"


def test_every_metric_is_in_the_table_with_its_labels(server: Serving) -> None:
    """The board and the alert rules are checked against the table alone."""
    with server.caller() as caller:
        told = caller.ask("metrics")
    for kind in ("counters", "gauges", "histograms"):
        for name, labels, *_ in told[kind]:
            family = FAMILIES[name]
            assert (f"{family.kind}s", family.labels) == (kind, tuple(labels))


def test_the_connections_of_the_server_are_counted(server: Serving) -> None:
    """Bytes that a server moves are nowhere to be seen."""
    unix = ("forebay_transport_connections", "unix")
    sent = ("forebay_transport_bytes_total", "sent")
    with server.caller() as caller:
        before = metrics(caller)
        with server.caller() as second:
            second.ask("info")
            during = metrics(caller)
            assert during[unix] == before[unix] + 1
            assert during[sent] > before[sent]
        until(caller, unix, before[unix])
