"""Connections within one process, and wires that fail where they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from forebay.errors import BrokenError, ConfigError
from forebay.testing import Wire, chaos, connection_pair, memory_listen
from forebay.testing._wire import Passage
from forebay.transport import AsyncConnection, connect, listen

HEADER_BYTES = 24 + 8
"""Of a message of one frame."""

Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on one of the loops, in debug mode, and bound its time."""

    def bounded(main: Awaitable[None]) -> None:
        async def within() -> None:
            async with asyncio.timeout(20):
                await main

        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with chaos.nothing_left(), asyncio.Runner(loop_factory=factory, debug=True) as runner:
            runner.run(within())

    return bounded


async def fill(connection: AsyncConnection) -> None:
    while True:
        await connection.send(bytes(1_000_000))


async def echo(connection: AsyncConnection) -> None:
    async for message in connection:
        await connection.send(message)


@pytest.mark.parametrize("wire", [None, Wire(), Wire(piece_bytes=9, delay=0.001, seed=3)])
def test_a_pair_carries_messages_both_ways(run: Run, wire: Wire | None):
    """A test needs no port, and a slow wire in small pieces changes nothing but the time."""

    async def main() -> None:
        async with connection_pair(there=wire, back=wire) as (one, other):
            await one.send([b"a", b"", b"b" * 100])
            await other.send(b"c")
            assert await other.recv() == [b"a", b"", b"b" * 100]
            assert await one.recv() == [b"c"]
            assert one.peer_address.startswith("mem://")

    run(main())


@pytest.mark.parametrize("how", ["truncate_at", "cut_at", "reset_at"])
def test_a_failure_at_each_byte_is_told_and_nothing_cut_arrives(run: Run, how: str):
    """The message before it is whole; of the one that it strikes nothing is seen."""

    async def struck(at: int) -> None:
        wire = Wire(**{how: HEADER_BYTES + 4 + at})
        async with connection_pair(there=wire) as (one, other):
            await one.send(b"1234")
            await one.send(b"5678")
            assert await other.recv() == [b"1234"]
            with pytest.raises(BrokenError) as caught:
                await other.recv()
            assert ("middle of a frame" in str(caught.value)) == (how != "reset_at" and at > 0)

    async def main() -> None:
        for at in range(HEADER_BYTES + 4):
            await struck(at)

    run(main())


def test_a_truncated_direction_leaves_the_other_one_open(run: Run):
    """A half-closed stream can be told from one that is gone."""

    async def main() -> None:
        async with connection_pair(there=Wire(truncate_at=0)) as (one, other):
            await one.send(b"lost")
            with pytest.raises(BrokenError):
                await other.recv()
            await other.send(b"still here")
            assert await one.recv() == [b"still here"]

    run(main())


def test_a_held_wire_is_a_peer_that_hangs(run: Run):
    """Senders wait once the kernel takes no more, receivers for ever."""

    async def main() -> None:
        async with connection_pair(there=Wire(hold_at=0)) as (one, other):
            sending = asyncio.create_task(fill(one))
            # The kernel takes what its buffers hold, which differs from machine to machine.
            while not one.metrics()["outbox_bytes"]:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(0.001)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other.recv(), 0.05)
            assert not sending.done()
            sending.cancel()

    run(main())


def test_a_memory_listener_runs_its_handler_for_each_connection(run: Run):
    """What is tested is the handler that `listen` would get."""

    async def main() -> None:
        listener = memory_listen(echo)
        async with listener.connect() as one, listener.connect() as other:
            await one.send(b"one")
            await other.send(b"other")
            assert await one.recv() == [b"one"]
            assert await other.recv() == [b"other"]
        async with listener.connect(back=Wire(cut_at=10)) as broken:
            await broken.send(b"x")
            with pytest.raises(BrokenError):
                await broken.recv()

    run(main())


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_a_relay_fails_in_front_of_a_real_listener(run: Run, scheme: str, tmp_path: Path):
    """Code that only knows a URL is tested unchanged."""

    async def main() -> None:
        url = "tcp://127.0.0.1:0" if scheme == "tcp" else f"unix://{tmp_path}/s"
        async with (
            listen(url, echo) as listener,
            chaos.relay(listener.url, there=chaos.Wire(reset_at=100)) as relay,
            connect(relay.url) as connection,
        ):
            await connection.send(bytes(50))
            assert await connection.recv() == [bytes(50)]
            await connection.send(bytes(50))
            with pytest.raises(BrokenError):
                await connection.recv()

    run(main())


def test_a_wire_is_the_same_for_the_same_seed():
    """A failure that was found once is found again."""

    def pieces(seed: int) -> list[tuple[float, int]]:
        passage = Passage(Wire(piece_bytes=50, delay=1.0, seed=seed))
        return [(wait, len(piece)) for wait, piece in passage.steps(bytes(1000))]

    assert pieces(1) == pieces(1) != pieces(2)
    assert sum(count for _, count in pieces(1)) == 1000


@pytest.mark.parametrize(
    "wrong", [{"cut_at": 1, "reset_at": 2}, {"delay": -1.0}, {"cut_at": -1}, {"piece_bytes": 0}]
)
def test_wires_that_make_no_sense_are_refused(wrong: dict[str, int]):
    """A test that would test nothing says so."""
    with pytest.raises(ConfigError, match="Wire"):
        Wire(**wrong)
