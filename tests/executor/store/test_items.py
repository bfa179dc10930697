"""Generators as requests: items are on disk before anybody has them, and are read by number."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import (
    BrokenError,
    CancelledError,
    ConfigError,
    DiedError,
    RemoteError,
    StaleError,
)
from forebay.executor.backup.checking import check_backup
from forebay.executor.client.async_client import AsyncClient
from forebay.executor.client.client import Client
from tests.executor.backup.backing_up import back_up, served
from tests.executor.client_fixtures import client_of_serving, serving, small_disk
from tests.executor.serving import Serving, until
from tests.executor.store.items_app import kill

__all__ = ["client_of_serving", "serving"]

APP = (Path(__file__).parent / "items_app.py").read_text()


class Gate:
    """The files that let the items of a request through."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "gate")

    def open(self, *numbers: int) -> None:
        """Let these items through."""
        for number in numbers:
            Path(f"{self.path}.{number}").touch()

    def shut(self, *numbers: int) -> None:
        """Hold these items back."""
        for number in numbers:
            Path(f"{self.path}.{number}").unlink()

    def ended(self) -> str:
        """How an asynchronous generator has ended."""
        return Path(f"{self.path}.ended").read_text()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate that is shut."""
    return Gate(tmp_path)


def client_of(serving: Serving) -> Client:
    """Another client of a server."""
    return Client(f"unix://{serving.socket}", timeout=20.0)


def file_of(serving: Serving, id_: str) -> Path:
    """Where the items of a request are."""
    (folder,) = (serving.file.parent / "state").glob("*/items")
    return folder / id_


def numbers(items: Iterator[dict[str, int]], count: int) -> list[int]:
    """The numbers in the next items of a gated request."""
    return [value["number"] for value in islice(items, count)]


def test_items_come_in_order_with_their_numbers(serving: Serving, client: Client) -> None:
    """Without numbers nobody could come back for the rest."""
    request = client.submit("count", until=2_000)
    items = request.items()
    assert (items.number, items.epoch) == (0, None)
    seen = [(value, items.number, items.epoch) for value in items]
    assert seen == [(number, number + 1, 1) for number in range(2_000)]
    assert list(items) == []
    assert request.result() is None
    shown = request.show()["items"]
    assert (shown["epoch"], shown["count"]) == (1, 2_000)
    file = file_of(serving, request.id)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size == shown["bytes"] + 64
    assert [one.name for one in file.parent.iterdir()] == [request.id]
    plain = client.submit("plain")
    assert plain.show()["items"] is None
    counts = {row["id"]: row["yielded"] for row in client.list()}
    assert counts == {request.id: 2_000, plain.id: None}


def test_an_item_comes_before_the_next_is_made(client: Client, gate: Gate) -> None:
    """Who waits for the whole list could have had a list."""
    request = client.submit("gated", gate=gate.path, until=3)
    items = request.items()
    for number in (1, 2, 3):
        gate.open(number)
        assert next(items)["number"] == number
        assert request.show()["items"]["count"] == number
    assert list(items) == []
    assert request.result() == "returned"


def test_a_reader_goes_on_behind_a_number(client: Client, gate: Gate) -> None:
    """A program that kept its last number has lost nothing: during the run, and after it."""
    gate.open(1, 2)
    request = client.submit("gated", gate=gate.path, until=4)
    assert numbers(request.items(), 2) == [1, 2]
    behind = client.get(request.id).items(after=1, epoch=1)
    assert numbers(behind, 1) == [2]
    assert behind.number == 2
    there = request.items(follow=False)
    assert [value["number"] for value in there] == [1, 2]
    gate.open(3, 4)
    assert numbers(behind, 9) == [3, 4]
    assert request.result() == "returned"
    assert [value["number"] for value in request.items(after=3)] == [4]
    assert list(request.items(after=4)) == []
    assert list(request.items(after=400)) == []
    with pytest.raises(ConfigError, match="after is -1"):
        request.items(after=-1)


def test_many_readers_of_one_request_hold_nobody_up(client: Client, serving: Serving) -> None:
    """One that stops reading, or leaves, would hold a worker for ever."""
    request = client.submit("sized", sizes=[10_000] * 1_000)
    with client_of(serving) as slow, client_of(serving) as gone:
        stopped = slow.get(request.id).items()
        next(stopped)
        left = gone.get(request.id).items()
        next(left)
        left.close()
        assert list(left) == []
        assert request.result(timeout=20) is None
        assert sum(map(len, stopped)) == 10_000 * 999
        assert sum(map(len, request.items())) == 10_000 * 1_000


def test_asynchronous_generators_are_read_by_asynchronous_clients(
    serving: Serving, client: Client, gate: Gate
) -> None:
    """Tokens come from a model on a loop to a page on another."""

    async def read() -> list[tuple[int, int]]:
        async with AsyncClient(f"unix://{serving.socket}") as there:
            request = await there.submit("gated_async", gate=gate.path, until=5)
            seen = []
            gate.open(1)
            items = request.items()
            async for value in items:
                seen.append((value, items.number))
                gate.open(value + 1)
            assert await request.result() is None
            async with request.items(after=4) as rest:
                assert [value async for value in rest] == [5]
            return seen

    assert asyncio.run(read()) == [(number, number) for number in range(1, 6)]


def test_a_task_that_was_cancelled_goes_on_behind_the_last_item(
    serving: Serving, client: Client, gate: Gate
) -> None:
    """A page waits a while for the next item, and comes back; the end is not taken for reached."""

    async def read() -> list[int]:
        async with AsyncClient(f"unix://{serving.socket}") as there:
            items = (await there.submit("gated_async", gate=gate.path, until=3)).items()
            seen = []
            for number in (1, 2, 3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(items), 0.05)
                gate.open(number)
                seen.append(await anext(items))
            assert [value async for value in items] == []
            return seen

    assert asyncio.run(read()) == [1, 2, 3]


def test_an_interrupt_loses_no_item(client: Client, gate: Gate) -> None:
    """A notebook's cell is stopped while it waits, and run again."""
    gate.open(1)
    items = client.submit("gated", gate=gate.path, until=3).items()
    assert numbers(items, 1) == [1]
    main = threading.get_ident()
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(items)
    timer.join()
    gate.open(2, 3)
    assert numbers(items, 9) == [2, 3]


def test_a_generator_that_never_waits_shares_its_loop(client: Client) -> None:
    """The thousands beside it would wait for its last item."""
    request = client.submit("count_async", until=200_000)
    until(lambda: (request.show()["items"] or {}).get("count", 0) > 1)
    assert client.run("ping") == "pong"
    assert request.show()["items"]["count"] < 200_000
    assert sum(1 for _ in request.items()) == 200_000


def test_more_asynchronous_generators_run_than_files_stay_open(client: Client, gate: Gate) -> None:
    """A thousand open files are the end of many a process."""
    requests = [client.submit("gated_async", gate=gate.path, until=3) for _ in range(300)]
    until(lambda: all(request.show()["items"] for request in requests[-3:]))
    gate.open(1, 2, 3)
    assert all(list(request.items()) == [1, 2, 3] for request in requests)


def test_arrays_are_items(client: Client) -> None:
    """Small ones in one message, large ones each in its own, none of them changed on the way."""
    sizes = [0, 3, 100_000, 7_000, 9_000, 400_000, 1]
    request = client.submit("arrays", sizes=sizes)
    found = list(request.items())
    assert [array.size for array in found] == sizes
    assert all(np.array_equal(array, np.arange(array.size)) for array in found)
    assert all(array.flags.writeable and array.dtype == np.float64 for array in found)


def test_large_items_come_to_their_end(client: Client) -> None:
    """A reader that took all of one while it was written waited for ever for the next.

    Of twenty readings of a server with that fault one hung, in one of the first four.
    """
    request = client.submit("sized", sizes=[1_040_000] * 60)
    for _ in range(20):
        assert sum(map(len, request.items())) == 60 * 1_040_000


def test_a_new_attempt_is_a_new_epoch_that_readers_are_told(
    serving: Serving, client: Client, gate: Gate
) -> None:
    """Who adds up items would count those of the first attempt twice."""
    gate.open(1, 2)
    request = client.submit("again", gate=gate.path, until=3)
    items = request.items()
    pid = next(items)["pid"]
    assert numbers(items, 1) == [2]
    kill(pid)
    with pytest.raises(StaleError, match=r"up to item 2 was of epoch 1, and epoch 2 begins"):
        next(items)
    assert (items.number, items.epoch) == (2, 1)
    assert numbers(items, 2) == [1, 2]
    assert (items.number, items.epoch) == (2, 2)
    gate.open(3)
    assert numbers(items, 9) == [3]
    late = request.items(after=2, epoch=1)
    with pytest.raises(StaleError):
        next(late)
    assert numbers(late, 9) == [1, 2, 3]
    assert request.show()["items"]["epoch"] == 2


def test_the_items_of_a_worker_that_died_are_there_and_then_its_cause(
    client: Client, gate: Gate
) -> None:
    """A stream that ends as if it were whole is taken for whole."""
    gate.open(1, 2)
    request = client.submit("gated", gate=gate.path, until=3)
    items = request.items()
    pid = next(items)["pid"]
    assert numbers(items, 1) == [2]
    kill(pid)
    with pytest.raises(DiedError):
        next(items)
    again = request.items()
    assert numbers(again, 2) == [1, 2]
    with pytest.raises(DiedError):
        next(again)
    assert list(again) == []


def test_a_reader_follows_to_the_next_server(serving: Serving, client: Client, gate: Gate) -> None:
    """What it has had is of an epoch that it is told has ended, or is still there."""
    gate.open(1, 2)
    once = client.submit("gated", gate=gate.path, until=3)
    more = client.submit("again", gate=gate.path, until=3)
    of_once, of_more = once.items(), more.items()
    assert numbers(of_once, 2) == numbers(of_more, 2) == [1, 2]
    serving.kill()
    serving.start()
    with pytest.raises(DiedError):
        next(of_once)
    assert numbers(once.items(after=1), 1) == [2]
    with pytest.raises(StaleError):
        next(of_more)
    gate.open(3)
    assert numbers(of_more, 9) == [1, 2, 3]


def test_a_worker_goes_on_with_its_items_under_the_next_server(
    serving: Serving, client: Client, gate: Gate
) -> None:
    """A take-over is no new epoch."""
    gate.open(1)
    request = client.submit("gated", gate=gate.path, until=3)
    items = request.items()
    assert numbers(items, 1) == [1]
    successor = serving.replace()
    try:
        gate.open(2, 3)
        assert numbers(items, 9) == [2, 3]
        assert (items.number, items.epoch) == (3, 1)
    finally:
        successor.close()


def test_an_operators_retry_is_a_new_epoch(client: Client) -> None:
    """Its items are those of the newest run, and no mixture."""
    request = client.submit("raises", until=2)
    items = request.items()
    assert list(islice(items, 2)) == [0, 1]
    with pytest.raises(RemoteError, match="no more of them"):
        next(items)
    request.retry()
    with pytest.raises(RemoteError):
        request.result(timeout=20)
    with pytest.raises(StaleError):
        next(request.items(after=1, epoch=1))
    assert list(islice(request.items(epoch=2), 2)) == [0, 1]


def test_cancelling_ends_the_generator_and_keeps_its_items(
    client: Client, tmp_path: Path, gate: Gate
) -> None:
    """What it holds is given back, by its `finally`, on a loop too."""
    path = tmp_path / "ended"
    request = client.submit("sleeps", path=str(path))
    items = request.items()
    assert next(items) == 1
    assert request.cancel() == "asked"
    with pytest.raises(CancelledError):
        next(items)
    assert path.exists()
    assert list(islice(request.items(), 1)) == [1]
    gate.open(1)
    request = client.submit("gated_async", gate=gate.path, until=2)
    items = request.items()
    assert next(items) == 1
    request.cancel()
    with pytest.raises(CancelledError):
        next(items)
    assert gate.ended() == "CancelledError"


def test_an_item_that_is_no_data_closes_the_generator(client: Client, tmp_path: Path) -> None:
    """It learns at its `yield` that nobody takes more."""
    path = tmp_path / "ended"
    request = client.submit("closed", path=str(path), until=2)
    with pytest.raises(TypeError, match=r"'closed' yielded a builtins.object that cannot be sent"):
        list(request.items())
    assert path.read_text() == "GeneratorExit"
    assert list(request.items(follow=False)) == [0, 1]
    with pytest.raises(TypeError, match=r"'stubborn' yielded a builtins\.object"):
        client.run("stubborn")


def test_an_item_of_another_type_than_annotated_is_an_error(client: Client) -> None:
    """As a result is."""
    from tests.executor.store.items_app import undecided

    request = client.submit(undecided, until=1)
    with pytest.raises(TypeError, match="undecided"):
        next(request.items())


def test_a_request_that_is_no_generator_has_no_items(client: Client) -> None:
    """A misspelt name is told, where it can be."""
    from tests.executor.store.items_app import plain

    with pytest.raises(ConfigError, match="'plain' is no generator"):
        client.submit(plain).items()
    assert list(client.submit("plain").items()) == []
    with pytest.raises(ConfigError, match="there is no request"):
        next(client.get("0" * 12).items())


def test_a_child_of_the_generator_yields_nothing(client: Client) -> None:
    """Two processes would write over each other."""
    request = client.submit("forks")
    assert list(request.items()) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "sizes", "kept", "told"),
    [
        (
            {"max_items": 3},
            [1] * 4,
            3,
            r"it has yielded 3 items, and max_items is 3.*FOREBAY_EXECUTOR_MAX_ITEMS=6",
        ),
        (
            {"max_item_bytes": 1000},
            [10, 1000],
            1,
            r"item 2 has 1003 bytes, and max_item_bytes is 1000.*MAX_ITEM_BYTES=1003",
        ),
        (
            {"max_stream_bytes": 1000},
            [495, 497],
            1,
            r"with item 2 its items have 1006 bytes, and max_stream_bytes is 1000",
        ),
    ],
)
def test_a_limit_ends_the_request_and_names_itself(
    tmp_path: Path, settings: dict[str, int], sizes: list[int], kept: int, told: str
) -> None:
    """No item is left out silently."""
    with Serving(tmp_path, APP, **settings) as serving, client_of(serving) as client:
        request = client.submit("sized", sizes=sizes)
        items = request.items()
        assert len(list(islice(items, kept))) == kept
        with pytest.raises(RemoteError, match=told) as caught:
            next(items)
        assert "request 'sized'" in str(caught.value)


def test_a_full_disk_ends_the_request_and_keeps_what_was_there(tmp_path: Path) -> None:
    """The error names the item, the folder and the free space."""
    with (
        small_disk(tmp_path, "24m"),
        Serving(tmp_path, APP) as serving,
        client_of(serving) as client,
    ):
        request = client.submit("sized", sizes=[1_000_000] * 40)
        items = request.items()
        with pytest.raises(OSError, match=r"item \d+ of 1.0 MB cannot be kept in .*items .*free"):
            list(items)
        assert 5 <= items.number < 24
        assert request.show()["items"]["count"] == items.number
        assert sum(map(len, request.items(follow=False))) == items.number * 1_000_000


def test_items_go_with_their_request(serving: Serving, client: Client) -> None:
    """They would fill the disk, and be found by nobody."""
    request = client.submit("sized", sizes=[100_000] * 3)
    request.result(timeout=20)
    file = file_of(serving, request.id)
    assert file.exists()
    assert client.prune(ids=[request.id])["bytes"] > 300_000
    assert not file.exists()
    with pytest.raises(ConfigError, match="there is no request"):
        next(request.items())


def test_files_that_no_request_has_are_removed_at_the_next_start(
    serving: Serving, client: Client
) -> None:
    """A server that died between two steps leaves nothing for ever."""
    request = client.submit("count", until=1)
    request.result(timeout=20)
    kept = file_of(serving, request.id)
    serving.kill()
    orphan, unfinished = kept.with_name("000000000001"), kept.with_name(f"{request.id}.7.new")
    for path in (orphan, unfinished):
        path.touch()
        os.utime(path, (0, 0))
    serving.start()
    until(lambda: not orphan.exists() and not unfinished.exists())
    assert list(request.items()) == [0]


def test_items_that_were_damaged_are_an_error(serving: Serving, client: Client) -> None:
    """A reader is told where, and nobody else suffers."""
    request = client.submit("count", until=3)
    request.result(timeout=20)
    file = file_of(serving, request.id)
    with file.open("r+b") as damaged:
        damaged.seek(64)
        damaged.write(b"\xff" * 4)
    with pytest.raises(BrokenError, match="cannot be read: an item of an impossible length"):
        next(request.items())
    assert client.run("plain") == 7


def test_a_thread_that_waits_for_an_item_gets_it(client: Client, gate: Gate) -> None:
    """A poll would cost a core, or seconds."""
    request = client.submit("gated", gate=gate.path, until=1)
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.extend(request.items()))
    thread.start()
    until(lambda: request.show()["items"])
    before = time.monotonic()
    gate.open(1)
    thread.join(10)
    assert len(seen) == 1
    assert time.monotonic() - before < 5


def test_a_backup_has_the_items(
    serving: Serving, client: Client, tmp_path: Path, gate: Gate
) -> None:
    """Also of a generator that goes on meanwhile: those that were counted."""
    gate.open(1, 2)
    whole, half = client.submit("count", until=500), client.submit("gated", gate=gate.path, until=3)
    assert list(whole.items()) == list(range(500))
    assert numbers(half.items(), 2) == [1, 2]
    target = tmp_path / "copy"
    told = back_up(serving, target)
    assert told.code == 0, told
    assert check_backup(target).faults == ()
    gate.open(3)
    with served(serving, target) as other:
        assert list(other.get(whole.id).items()) == list(range(500))
        assert numbers(other.get(half.id).items(), 2) == [1, 2]
