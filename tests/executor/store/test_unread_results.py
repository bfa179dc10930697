"""Results that a client has not read: they come all the same, and the server stays small."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import DeadlineError, LimitError
from forebay.executor import AsyncClient, Client, Request
from tests.executor.serving import Serving, until

APP = """
import forebay
app = forebay.App("fat")

@app.request
def fat(n: int, mark: int = 0) -> bytes:
    return mark.to_bytes(4, "big") * (n // 4)
"""
FLEETING: dict[str, Any] = {
    "synchronous": "normal",
    "max_workers": 2,
    "retention_every_ms": 100,
}
"""A server that looks often for what is to go."""
SERVER_BYTES_MAX = 180_000_000
"""At its peak: 32 MiB of results on their way to the disk, 16 MiB to each client, and itself."""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A server that does not wait for the disk with each commit, which is not what is tested."""
    with Serving(tmp_path, APP, synchronous="normal", max_workers=2) as made:
        yield made


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def all_succeed(client: Client, count: int) -> None:
    """Wait until so many requests have ended well, as the server counts."""

    def figures() -> dict[str, Any]:
        told: dict[str, Any] = client.info()["figures"]
        return told

    until(lambda: figures()["succeeded"] == count, 50, every=0.1, why=figures)


@pytest.mark.parametrize(
    ("count", "size"), [(120, 900_000), (1_000, 100_000)], ids=["large", "many"]
)
def test_results_that_lay_unread_come_all_the_same(serving: Serving, count: int, size: int) -> None:
    """Above 64 MiB unread, every result of a request that had succeeded was lost to the program."""
    url = f"unix://{serving.socket}"
    with Client(url) as client, Client(url) as other:
        handles = [client.submit_nowait("fat", n=size, mark=mark) for mark in range(count)]
        all_succeed(other, count)
        for mark, handle in enumerate(handles):
            assert handle.result(timeout=20)[:4] == mark.to_bytes(4, "big")
        assert peak_bytes(serving.pid) < SERVER_BYTES_MAX


def test_what_is_submitted_behind_unread_results_runs(serving: Serving) -> None:
    """A program that read nothing for a while found that half of it had not begun."""
    url = f"unix://{serving.socket}"
    with Client(url) as client, Client(url) as other:
        handles = [client.submit_nowait("fat", n=900_000, mark=mark) for mark in range(10)]
        all_succeed(other, len(handles))
        handles.append(client.submit_nowait("fat", n=900_000, mark=len(handles)))
        all_succeed(other, len(handles))
        for mark, handle in enumerate(handles):
            assert handle.result(timeout=20)[:4] == mark.to_bytes(4, "big")


def test_results_of_submit_many_come_however_late_they_are_read(serving: Serving) -> None:
    """The guide's own program lost what it had not read in time."""
    url = f"unix://{serving.socket}"
    with Client(url) as client, Client(url) as other:
        calls = [{"n": 500_000, "mark": mark} for mark in range(160)]
        handles = client.submit_many("fat", calls)
        all_succeed(other, len(calls))
        found = [handle.result(timeout=20)[:4] for handle in handles]
        assert found == [mark.to_bytes(4, "big") for mark in range(len(calls))]


def test_a_loop_that_asks_for_all_at_once_gets_all(serving: Serving) -> None:
    """Answers from the disk wait for who takes them slowly, rather than end its connection."""
    url = f"unix://{serving.socket}"
    with Client(url) as client:
        handles = [client.submit_nowait("fat", n=900_000, mark=mark) for mark in range(100)]
        ids = [handle.id for handle in handles]
        all_succeed(client, len(ids))

    async def all_at_once() -> list[bytes]:
        async with AsyncClient(url) as client:
            found = [(await client.get(id)).result(timeout=40) for id in ids]
            return [value[:4] for value in await asyncio.gather(*found)]

    assert asyncio.run(all_at_once()) == [mark.to_bytes(4, "big") for mark in range(len(ids))]
    assert peak_bytes(serving.pid) < SERVER_BYTES_MAX


def unread(serving: Serving, client: Client, other: Client, count: int = 75) -> list[Request]:
    """Requests with results of 900 kB that have ended, were not read, and were passed by.

    They are one message: each `submit` of its own would read results that come before its answer.
    The retention is known to have looked at them: what was read after they had ended has gone.
    """
    handles = client.submit_many("fat", [{"n": 900_000, "mark": mark} for mark in range(count)])
    ids = [handle.id for handle in handles]
    all_succeed(other, count)
    mark = other.submit_nowait("fat", n=900_000)
    mark.result(timeout=20)
    looked = {mark.id, ids[0]}
    until(lambda: looked - {row["id"] for row in other.list(limit=1_000)}, 20, every=0.1)
    return handles


def kept(client: Client, handles: list[Request]) -> int:
    """How many of these the server still has."""
    ids = {handle.id for handle in handles}
    return len(ids & {row["id"] for row in client.list(limit=1_000)})


def test_results_that_a_live_client_has_not_read_are_not_pruned(tmp_path: Path) -> None:
    """A program that read its results after a minute lost the oldest of those above 1 GB."""
    with (
        Serving(tmp_path, APP, **FLEETING, retention_bytes=20_000_000) as serving,
        Client(f"unix://{serving.socket}") as client,
        Client(f"unix://{serving.socket}") as other,
    ):
        handles = unread(serving, client, other)
        assert [handle.result(timeout=20)[:4] for handle in handles] == [
            mark.to_bytes(4, "big") for mark in range(len(handles))
        ]
        # What was read is nobody's any more, and goes as ever.
        until(lambda: kept(other, handles) < 25, 20, every=0.1)


def test_results_in_files_that_a_live_client_has_not_read_are_not_pruned(tmp_path: Path) -> None:
    """A result in a file was lost as well: it is opened when it is wanted, and not before."""
    with (
        Serving(
            tmp_path, APP, **FLEETING, retention_bytes=20_000_000, max_result_bytes=100_000
        ) as serving,
        Client(f"unix://{serving.socket}") as client,
        Client(f"unix://{serving.socket}") as other,
    ):
        handles = unread(serving, client, other)
        assert [handle.result(timeout=20)[:4] for handle in handles] == [
            mark.to_bytes(4, "big") for mark in range(len(handles))
        ]
        until(lambda: kept(other, handles) < 25, 20, every=0.1)


def test_unread_results_of_a_client_that_left_are_pruned(tmp_path: Path) -> None:
    """Otherwise each program that ended early would leave its results above the limit for good."""
    with (
        Serving(tmp_path, APP, **FLEETING, retention_bytes=20_000_000) as serving,
        Client(f"unix://{serving.socket}") as other,
    ):
        with Client(f"unix://{serving.socket}") as client:
            handles = unread(serving, client, other)
            assert kept(other, handles) >= 25  # the others lie in its connection
        until(lambda: kept(other, handles) < 25, 20, every=0.1)


def test_a_client_that_leaves_with_results_unread_leaves_nothing(tmp_path: Path) -> None:
    """Each one kept its place among `clients_max` and 16 MiB of answers until the server ended."""
    with (
        Serving(tmp_path, APP, **FLEETING) as serving,
        Client(f"unix://{serving.socket}") as other,
    ):
        leaving = Client(f"unix://{serving.socket}")
        handles = [leaving.submit_nowait("fat", n=900_000) for _ in range(40)]
        all_succeed(other, len(handles))
        running = descriptors(serving.pid)
        leaving._links.close()  # as a program that is killed does
        until(lambda: descriptors(serving.pid) < running, 20, every=0.1)


def descriptors(pid: int) -> int:
    """How many a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_an_unread_result_that_was_pruned_is_told_by_its_limit(tmp_path: Path) -> None:
    """`unknown request` for one that had succeeded said neither why nor what to set."""
    with (
        Serving(tmp_path, APP, **FLEETING, retention_bytes=2_000_000) as serving,
        Client(f"unix://{serving.socket}") as client,
        Client(f"unix://{serving.socket}") as other,
    ):
        handles = unread(serving, client, other)
        until(lambda: kept(other, handles) < 20, 20, every=0.1)
        told = [handle.exception(timeout=20) for handle in handles]
        lost = [error for error in told if error is not None]
        assert lost
        for error in lost:
            assert isinstance(error, LimitError)
            assert "retention_bytes" in str(error)
        lost_first = next(mark for mark, error in enumerate(told) if error is not None)
        assert handles[lost_first].status() == "succeeded"


def test_the_time_to_wait_counts_for_both_questions(tmp_path: Path) -> None:
    """`result(timeout=1)` took half a minute where the server told the end and then no more."""
    with (
        Serving(tmp_path, APP, **FLEETING) as serving,
        Client(f"unix://{serving.socket}") as client,
        Client(f"unix://{serving.socket}") as other,
    ):
        # One message: a `submit` of its own would read the results that come before its answer.
        # A third more than the server keeps, since its answer may be read behind some of them.
        handles = client.submit_many("fat", [{"n": 900_000, "mark": mark} for mark in range(56)])
        all_succeed(other, len(handles))
        client.info()  # what comes before its answer has come: all ends
        last = handles[-1]
        os.kill(serving.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(DeadlineError, match="the result of request"):
                last.result(timeout=0.5)
            assert time.monotonic() - began < client.timeout / 2
            assert client.wait([last], timeout=0.1) == ([last], [])
        finally:
            os.kill(serving.pid, signal.SIGCONT)
        assert last.result(timeout=20)[:4] == (55).to_bytes(4, "big")
