"""The server on an event loop, with callers of both kinds."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay import rpc
from forebay.errors import BrokenError, ClosedError, ConfigError, RemoteError

from .conftest import Run, descriptors


@dataclasses.dataclass
class Point:
    """Data of the user's own."""

    x: int
    y: int


class Handler:
    """Some methods that await and some that do not."""

    def __init__(self) -> None:
        self.running = self.peak = 0
        self.cancelled = 0

    def echo(self, value: Any) -> Any:
        return value

    async def later(self, value: Any) -> Any:
        self.running += 1
        self.peak = max(self.peak, self.running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        return value

    async def hang(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def fail(self) -> None:
        raise KeyError("lost")

    async def remaining(self) -> float | None:
        return rpc.current().remaining


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 - the event is in another task's state
        await asyncio.sleep(0)


@pytest.mark.parametrize("codec", ["msgpack", "pickle"])
def test_both_kinds_of_methods_answer(run: Run, tmp_path: Path, codec: str) -> None:
    """One handler serves plain and async methods, to several channels."""
    address = f"unix://{tmp_path}/s"

    async def work() -> None:
        async with rpc.serve(Handler(), address):
            channels = [await rpc.connect(address, codec=codec) for _ in range(3)]
            for channel in channels:
                assert await channel.call("echo", ([1, "two", None],)) == [1, "two", None]
                assert await channel.call("later", (5,)) == 5
                assert 0 < await channel.call("remaining", timeout=9) <= 9.001
                with pytest.raises(KeyError) as caught:
                    await channel.call("fail")
                assert isinstance(caught.value, RemoteError)
                await channel.aclose()

    run(work())


def test_a_blocking_caller_in_a_thread(run: Run, tmp_path: Path) -> None:
    """The blocking face talks to the asyncio server."""
    address = f"unix://{tmp_path}/s"

    def caller() -> int:
        with rpc.connect(address) as channel:
            return sum(channel.call("later", (at,)) for at in range(20))

    async def work() -> None:
        async with rpc.serve(Handler(), address):
            assert await asyncio.to_thread(caller) == 190

    run(work())


def test_data_travels_by_msgpack(run: Run, tmp_path: Path) -> None:
    """Dates, dataclasses, bytes and arrays need no pickle; what is no data is refused."""
    address = f"unix://{tmp_path}/s"
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)

    async def work() -> None:
        async with rpc.serve(Handler(), address):
            channel = await rpc.connect(address)
            assert await channel.call("echo", (Point(1, 2),)) == {"x": 1, "y": 2}
            assert await channel.call("echo", ({"at": b"x"},)) == {"at": b"x"}
            assert await channel.call("echo", (moment,)) == moment
            large = b"y" * 200_000
            assert await channel.call("echo", (large,)) == large
            for array in (
                np.arange(6).reshape(2, 3),
                np.zeros((300, 200)),
                np.array(5),
                np.arange(9)[::2],
            ):
                back = await channel.call("echo", (array,))
                assert back.dtype == array.dtype
                assert np.array_equal(back, array)
                assert back.flags.writeable
            with pytest.raises(TypeError, match="pickle"):
                await channel.call("echo", (object(),))
            with pytest.raises(TypeError, match="pickle"):
                await channel.call("echo", (np.array([object()]),))
            assert await channel.call("echo", (1,)) == 1
            await channel.aclose()

    run(work())


def test_cancelling_a_caller_cancels_the_task(run: Run, tmp_path: Path) -> None:
    """Work that nobody waits for ends: by a cancel, and by the caller's leaving."""
    address = f"unix://{tmp_path}/s"
    handler = Handler()

    async def work() -> None:
        async with rpc.serve(handler, address):
            channel = await rpc.connect(address)
            task = asyncio.create_task(channel.call("hang"))
            await channel.call("echo", (1,))
            task.cancel()
            await until(lambda: handler.cancelled == 1)
            assert await channel.call("echo", (2,)) == 2
            left = asyncio.create_task(channel.call("hang"))
            await channel.call("echo", (3,))
            await channel.aclose()
            with pytest.raises(ClosedError):
                await left
            await until(lambda: handler.cancelled == 2)

    run(work())


def test_a_caller_that_an_answer_finds_dead_leaves_nothing(run: Run, tmp_path: Path) -> None:
    """Its other call is cancelled and its connection closed, though no read came to see the end."""
    address = f"unix://{tmp_path}/s"

    async def work() -> None:
        class Fatal(Handler):
            def end_caller(self) -> bytes:
                channel.channel.close()
                return bytes(200_000)  # of a short answer a part would wait, and be tried again

        handler = Fatal()
        async with rpc.serve(handler, address) as server:
            channel = await rpc.connect(address)
            long = asyncio.create_task(channel.call("hang"))
            assert await channel.call("echo", (1,)) == 1
            with pytest.raises(ClosedError):
                await channel.call("end_caller")
            with pytest.raises(ClosedError):
                await long
            await until(lambda: handler.cancelled == 1 and server.connections == 0)

    run(work())


def test_running_calls_are_limited(run: Run, tmp_path: Path) -> None:
    """A burst waits in line instead of becoming tasks."""
    address = f"unix://{tmp_path}/s"
    handler = Handler()

    async def work() -> None:
        async with rpc.serve(handler, address, max_calls=4):
            channel = await rpc.connect(address)
            answers = await asyncio.gather(*(channel.call("later", (at,)) for at in range(200)))
            assert answers == list(range(200))
            await channel.aclose()

    run(work())
    assert handler.peak == 4


def test_connections_are_limited(run: Run, tmp_path: Path) -> None:
    """A connection above the limit waits to be accepted, and is, once another has left."""
    address = f"unix://{tmp_path}/s"

    async def work() -> None:
        async with rpc.serve(Handler(), address, max_connections=1):
            first = await rpc.connect(address)
            assert await first.call("echo", (1,)) == 1
            second = await rpc.connect(address)
            waiting = asyncio.create_task(second.call("echo", (2,)))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            await first.aclose()
            assert await waiting == 2
            await second.aclose()

    run(work())


def test_leaving_the_server_ends_everything(run: Run, tmp_path: Path) -> None:
    """Callers are told, the socket file goes, no descriptor is left."""
    address = f"unix://{tmp_path}/s"

    async def work() -> None:
        before = descriptors()
        async with rpc.serve(Handler(), address):
            channel = await rpc.connect(address)
            task = asyncio.create_task(channel.call("hang"))
            await channel.call("echo", (1,))
        with pytest.raises(BrokenError):
            await task
        await channel.aclose()
        assert descriptors() <= before

    run(work())
    assert not (tmp_path / "s").exists()


def test_wrong_addresses_are_refused(tmp_path: Path) -> None:
    """Mistakes are found before anything is opened."""
    with pytest.raises(ConfigError):
        rpc.connect("http://host:1")
    with pytest.raises(ConfigError, match="107"):
        rpc.connect(f"unix:///{'x' * 120}").open()
    with pytest.raises(ConfigError):
        rpc.connect(f"unix://{tmp_path}/s", codec="json")
    with pytest.raises(BrokenError) as caught:
        rpc.connect(f"unix://{tmp_path}/nobody").open()
    assert caught.value.delivered == "no"
    assert isinstance(caught.value.__cause__, FileNotFoundError)
