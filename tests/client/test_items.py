"""Items of generators over HTTP: in their order, each once, whatever ends in between."""

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

import forebay
import forebay_client
from forebay_client import AsyncClient, Client, errors
from tests.client.scripted_server import ScriptedServer, accepted, as_json, problem, stream
from tests.executor.serving import until
from tests.executor.store.items_app import kill, plain, undecided
from tests.gateway.http.http_serving import HttpServing

APP = (Path(__file__).parents[1] / "executor" / "store" / "items_app.py").read_text()
SUCCEEDED = ("", "status", {"status": "succeeded"})

pytestmark = pytest.mark.leaks(
    reason="the server of the module starts processes when it needs them"
)


class Gate:
    """The files that let the items of a request through."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "gate")

    def open(self, *numbers: int) -> None:
        """Let these items through."""
        for number in numbers:
            Path(f"{self.path}.{number}").touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    """A gate that is shut."""
    return Gate(tmp_path)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServing]:
    """A server and its gateway for all tests here."""
    with HttpServing(tmp_path_factory.mktemp("serving"), APP) as serving:
        yield serving


@pytest.fixture
def there(serving: HttpServing) -> Iterator[Client]:
    """A client of it."""
    with Client(serving.url, serving.token, timeout=30.0) as client:
        yield client


def numbers(items: Iterator[dict[str, int]], count: int) -> list[int]:
    """The numbers in the next items of a gated request."""
    return [value["number"] for value in islice(items, count)]


def item(epoch: int, number: int) -> tuple[str, str, Any]:
    """An event of a scripted gateway: the item is its number, below 128."""
    packed = {"epoch": epoch, "number": number, "msgpack": ["AA==", "AQ==", "Ag==", "Aw=="][number]}
    return f"{epoch}-{number}", "item", packed


def epoch(number: int, after: int = 0) -> tuple[str, str, Any]:
    """The event of an epoch."""
    return f"{number}-{after}", "epoch", {"epoch": number}


def test_items_come_in_order_with_their_numbers(there: Client) -> None:
    """As from a server on this machine; and a reader goes on behind any of them."""
    request = there.submit("count", until=2_000)
    items = request.items()
    assert (items.number, items.epoch) == (0, None)
    seen = [(value, items.number, items.epoch) for value in items]
    assert seen == [(number, number + 1, 1) for number in range(2_000)]
    assert list(items) == []
    behind = there.get(request.id).items(after=1_990, epoch=1)
    assert behind.number == 1_990
    assert list(behind) == list(range(1_990, 2_000))
    assert list(request.items(after=2_000)) == []
    with pytest.raises(errors.ConfigError, match="after is -1"):
        request.items(after=-1)


def test_an_item_comes_before_the_next_is_made(there: Client, gate: Gate) -> None:
    """What there is can be had without waiting for the rest."""
    request = there.submit("gated", gate=gate.path, until=3)
    with request.items() as items:
        for number in (1, 2):
            gate.open(number)
            assert next(items)["number"] == number
        there_is = request.items(follow=False)
        assert numbers(there_is, 9) == [1, 2]
        assert there_is.number == 2
        gate.open(3)
        assert numbers(items, 9) == [3]
    assert request.result(timeout=20) == "returned"


def test_arrays_and_bytes_are_items(there: Client) -> None:
    """JSON would have made text of them; one of 4 MB is an event of 5.6 million letters."""
    sizes = [0, 3, 100_000, 499_000, 1]
    found = list(there.submit("arrays", sizes=sizes).items())
    assert [array.size for array in found] == sizes
    assert all(np.array_equal(array, np.arange(array.size)) for array in found)
    blobs = [bytes(size) for size in (0, 10, 3_999_000)]
    assert list(there.submit("sized", sizes=[len(blob) for blob in blobs]).items()) == blobs


def test_a_new_attempt_is_a_new_epoch_that_readers_are_told(there: Client, gate: Gate) -> None:
    """Who adds up items would count those of the first attempt twice."""
    gate.open(1, 2)
    request = there.submit("again", gate=gate.path, until=3)
    items = request.items()
    pid = next(items)["pid"]
    assert numbers(items, 1) == [2]
    kill(pid)
    with pytest.raises(errors.StaleError, match=r"up to item 2 was of epoch 1, and epoch 2 begins"):
        next(items)
    assert (items.number, items.epoch) == (2, 1)
    assert numbers(items, 2) == [1, 2]
    assert (items.number, items.epoch) == (2, 2)
    gate.open(3)
    assert numbers(items, 9) == [3]
    late = request.items(after=2, epoch=1)
    with pytest.raises(forebay.StaleError):
        next(late)
    assert numbers(late, 9) == [1, 2, 3]


def test_the_items_come_and_then_why_there_are_no_more(there: Client, gate: Gate) -> None:
    """A stream that ends as if it were whole is taken for whole."""
    items = there.submit("raises", until=2).items()
    assert list(islice(items, 2)) == [0, 1]
    with pytest.raises(ValueError, match="no more of them"):
        next(items)
    assert list(items) == []
    gate.open(1)
    request = there.submit("gated", gate=gate.path, until=2)
    items = request.items()
    kill(next(items)["pid"])
    with pytest.raises(errors.DiedError):
        next(items)
    assert numbers(request.items(follow=False), 9) == [1]
    gate.path += "-other"
    gate.open(1)
    request = there.submit("gated", gate=gate.path, until=2)
    items = request.items()
    assert numbers(items, 1) == [1]
    request.cancel()
    with pytest.raises(errors.CancelledError):
        next(items)


def test_a_request_that_is_no_generator_has_no_items(there: Client) -> None:
    """A misspelt name is told, where it can be; and an item that is not what is annotated."""
    with pytest.raises(errors.ConfigError, match="'plain' is no generator"):
        there.submit(plain).items()
    assert list(there.submit("plain").items()) == []
    with pytest.raises(errors.ConfigError, match="no request"):
        next(there.get("0" * 12).items())
    with pytest.raises(TypeError, match="undecided"):
        next(there.submit(undecided, until=1).items())


def test_tasks_read_items_and_may_be_cancelled(serving: HttpServing, gate: Gate) -> None:
    """A page waits a while for the next item, looks elsewhere, and comes back."""

    async def read() -> list[tuple[int, int]]:
        async with AsyncClient(serving.url, serving.token, timeout=30.0) as there:
            request = await there.submit_nowait("gated_async", gate=gate.path, until=3)
            items, seen = request.items(), []
            for number in (1, 2, 3):
                for seconds in (0.0, 0.05):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(items), seconds)
                gate.open(number)
                seen.append((await anext(items), items.number))
            assert [value async for value in items] == []
            async with request.items(after=2) as rest:
                assert [value async for value in rest] == [3]
            failed = (await there.submit("raises", until=1)).items()
            assert await anext(failed) == 0
            with pytest.raises(ValueError, match="no more"):
                await anext(failed)
            return seen

    assert asyncio.run(read()) == [(number, number) for number in (1, 2, 3)]


def test_an_interrupt_loses_no_item(there: Client, gate: Gate) -> None:
    """A notebook's cell is stopped while it waits, and run again."""
    gate.open(1)
    items = there.submit("gated", gate=gate.path, until=3).items()
    assert numbers(items, 1) == [1]
    main = threading.get_ident()
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        next(items)
    timer.join()
    gate.open(2, 3)
    assert numbers(items, 9) == [2, 3]


def test_gateways_that_are_killed_lose_no_item_and_double_none(
    serving: HttpServing, there: Client, gate: Gate
) -> None:
    """Neither where items come, nor where a reader waits for one."""
    many = there.submit("count", until=60_000)
    waited = there.submit("gated", gate=gate.path, until=6)
    seen: list[int] = []
    reader = threading.Thread(target=lambda: seen.extend(many.items()))
    reader.start()
    items = waited.items()
    for number in range(1, 7):
        gate.open(number)
        assert numbers(items, 1) == [number]
        if number % 2:
            serving.kill_gateway()
            serving.wait_healthy()
    assert list(items) == []
    reader.join(60)
    assert seen == list(range(60_000))
    assert items.epoch == 1


def test_a_reader_follows_to_the_next_server(tmp_path: Path, gate: Gate) -> None:
    """What it has had is of an epoch that it is told has ended, or is still there."""
    gate.open(1, 2)
    with (
        HttpServing(tmp_path, APP) as serving,
        Client(serving.url, serving.token, timeout=60.0) as client,
    ):
        once = client.submit("gated", gate=gate.path, until=3)
        more = client.submit("again", gate=gate.path, until=3)
        of_once, of_more = once.items(), more.items()
        assert numbers(of_once, 2) == numbers(of_more, 2) == [1, 2]
        serving.kill()
        serving.start()
        with pytest.raises(errors.DiedError):
            next(of_once)
        assert numbers(once.items(after=1), 1) == [2]
        with pytest.raises(errors.StaleError):
            next(of_more)
        gate.open(3)
        assert numbers(of_more, 9) == [1, 2, 3]


def test_items_that_were_damaged_are_an_error(serving: HttpServing, there: Client) -> None:
    """Also within what a reader has begun, which otherwise asks for them for ever."""
    request = there.submit("sized", sizes=[100_000] * 4)
    request.result(timeout=20)
    (file,) = serving.state.glob(f"items/{request.id}")
    with file.open("r+b") as damaged:
        damaged.seek(64 + 3 * (os.path.getsize(file) - 64) // 4)
        damaged.write(b"\xff" * 4)
    items = request.items()
    assert [len(one) for one in islice(items, 3)] == [100_000] * 3
    with pytest.raises(errors.BrokenError, match="cannot be read: an item of an impossible length"):
        next(items)
    assert there.run("plain") == 7


def test_a_break_within_the_stream_goes_on_behind_the_last_item(
    server: ScriptedServer, client: Client
) -> None:
    """The gateway is asked by the number and the epoch of the item that came last."""
    server.answers = [
        accepted("a"),
        stream(epoch(1), item(1, 1), item(1, 2), end=False),
        problem(503, "server", "0"),
        stream(epoch(2), item(2, 1), SUCCEEDED),
    ]
    items = client.submit("echo").items()
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(errors.StaleError, match="up to item 2 was of epoch 1"):
        next(items)
    assert list(items) == [1]
    assert (items.epoch, items.number) == (2, 1)
    first, second, third = server.received[1:]
    assert first.query == [("form", "msgpack"), ("after", "0")]
    assert "last-event-id" not in first.headers
    assert second.headers["last-event-id"] == third.headers["last-event-id"] == "1-2"


def test_a_gateway_that_stays_away_is_an_error_and_no_end(
    server: ScriptedServer, client: Client
) -> None:
    """Going on with the same iterator asks again, behind the last item."""
    server.answers = [
        accepted("a"),
        stream(epoch(1, 1), item(1, 2), end=False),
        problem(500, "internal"),
        stream(item(1, 3), ("", "status", {"status": "failed"})),
        as_json({"code": "failed", "detail": "it failed"}, 422),
        as_json({"status": "failed"}),
    ]
    items = client.submit("echo").items(after=1)
    assert next(items) == 2
    with pytest.raises(errors.InternalError):
        next(items)
    assert next(items) == 3
    with pytest.raises(errors.BrokenError, match="it failed"):
        next(items)
    assert server.received[3].query == [("form", "msgpack"), ("after", "2"), ("epoch", "1")]


def test_what_is_no_item_is_told_so(server: ScriptedServer, client: Client) -> None:
    """A proxy or a later gateway may send what this client cannot read."""
    server.answers = [accepted("a"), stream(("1-1", "item", {"epoch": 1, "number": 1, "bytes": 9}))]
    with pytest.raises(errors.ProtocolError, match="item 1 of request echo came without"):
        next(client.submit("echo").items())


def test_leaving_early_ends_the_reading_alone(serving: HttpServing, gate: Gate) -> None:
    """A stream that nobody reads is not kept open; the request goes on."""
    gate.open(1)
    with forebay.Client(serving.url, token=serving.token) as client:
        assert isinstance(client, forebay_client.Client)
        request = client.submit("gated", gate=gate.path, until=2)
        with request.items() as items:
            assert next(items)["number"] == 1
        assert list(items) == []
        used: Any = client
        until(lambda: used._io._used == set() or len(used._session._idle) > 0)
        began = time.monotonic()
        gate.open(2)
        assert request.result(timeout=20) == "returned"
        assert time.monotonic() - began < 20
