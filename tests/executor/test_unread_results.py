"""Results that a client has not read: they come all the same, and the server stays small."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.executor import AsyncClient, Client
from tests.executor.serving import Serving, until

APP = """
import forebay
app = forebay.App("fat")

@app.request
def fat(n: int, mark: int = 0) -> bytes:
    return mark.to_bytes(4, "big") * (n // 4)
"""
SERVER_BYTES_MAX = 180_000_000
"""At its peak: 32 MiB of results on their way to the disk, 16 MiB to each client, and itself."""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server that does not wait for the disk with each commit, which is not what is tested."""
    with Serving(tmp_path, APP, synchronous="normal", workers_max=2) as made:
        yield made


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def succeeded(client: Client) -> int:
    """Requests that have ended well, as the server counts."""
    count: int = client.info()["figures"]["succeeded"]
    return count


@pytest.mark.parametrize(
    ("count", "size"), [(120, 900_000), (1_000, 100_000)], ids=["large", "many"]
)
def test_results_that_lay_unread_come_all_the_same(serving: Serving, count: int, size: int) -> None:
    """Above 64 MiB unread, every result of a request that had succeeded was lost to the program."""
    url = f"unix://{serving.socket}"
    with Client(url) as client, Client(url) as other:
        handles = [client.submit("fat", n=size, mark=mark) for mark in range(count)]
        until(lambda: succeeded(other) == count, 50, every=0.1)
        for mark, handle in enumerate(handles):
            assert handle.result(timeout=20)[:4] == mark.to_bytes(4, "big")
        assert peak_bytes(serving.pid) < SERVER_BYTES_MAX


def test_results_of_submit_many_come_however_late_they_are_read(serving: Serving) -> None:
    """The guide's own program lost what it had not read in time."""
    url = f"unix://{serving.socket}"
    with Client(url) as client, Client(url) as other:
        calls = [{"n": 500_000, "mark": mark} for mark in range(160)]
        handles = client.submit_many("fat", calls)
        until(lambda: succeeded(other) == len(calls), 50, every=0.1)
        found = [handle.result(timeout=20)[:4] for handle in handles]
        assert found == [mark.to_bytes(4, "big") for mark in range(len(calls))]


def test_a_loop_that_asks_for_all_at_once_gets_all(serving: Serving) -> None:
    """Answers from the disk wait for who takes them slowly, rather than end its connection."""
    url = f"unix://{serving.socket}"
    with Client(url) as client:
        handles = [client.submit("fat", n=900_000, mark=mark) for mark in range(100)]
        ids = [handle.id for handle in handles]
        until(lambda: succeeded(client) == len(ids), 50, every=0.1)

    async def all_at_once() -> list[bytes]:
        async with AsyncClient(url) as client:
            found = [(await client.get(id)).result(timeout=40) for id in ids]
            return [value[:4] for value in await asyncio.gather(*found)]

    assert asyncio.run(all_at_once()) == [mark.to_bytes(4, "big") for mark in range(len(ids))]
    assert peak_bytes(serving.pid) < SERVER_BYTES_MAX
