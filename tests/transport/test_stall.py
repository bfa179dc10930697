"""Peers that stop in the middle of something do not hold memory for ever."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Awaitable, Callable

import pytest

from forebay.errors import BrokenError, ConfigError
from forebay.transport import AsyncConnection, ConnectionLimits, connect, listen, native
from forebay.transport._stall import sweep_of
from tests.loops import Run
from tests.transport.loops import until
from tests.transport.message_bytes import announced, message, preface
from tests.transport.test_message_hazards import dialled

SHORT_S = 0.2
SHORT = ConnectionLimits(stall_timeout=SHORT_S)


def raising(raised: list[BaseException]) -> Callable[[AsyncConnection], Awaitable[None]]:
    """A handler that notes what its connection raises."""

    async def handler(connection: AsyncConnection) -> None:
        try:
            while True:
                await connection.recv()
        except BrokenError as error:
            raised.append(error)

    return handler


@pytest.mark.parametrize("table", [None, native.Table({})], ids=["python", "behind a table"])
def test_half_a_message_ends_its_connection(run: Run, table: native.Table | None) -> None:
    """Who sends half a message and then nothing is given up, and its memory comes back."""
    raised: list[BaseException] = []

    async def main() -> None:
        async with listen(
            "tcp://127.0.0.1:0", raising(raised), native=table, limits=SHORT
        ) as listener:
            with dialled(listener.url) as raw:
                raw.sendall(preface() + message(b"whole") + announced(1_000_000) + b"a part")
                await until(lambda: bool(raised))
            await until(lambda: listener.connections == 0)
            assert len(sweep_of(asyncio.get_running_loop())) == 0

    run(main())
    assert "stall_timeout" in str(raised[0])


def test_a_byte_now_and_then_does_not_hold_a_place(run: Run) -> None:
    """A slow loris after the handshake is given up as one before it is."""
    raised: list[BaseException] = []

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", raising(raised), limits=SHORT) as listener:
            with dialled(listener.url) as raw, contextlib.suppress(ConnectionError):
                raw.sendall(preface() + announced(1_000_000))
                while not raised:
                    raw.sendall(b"x")
                    await asyncio.sleep(SHORT_S / 20)

    run(main())
    assert raised


def test_a_peer_that_takes_nothing_is_given_up(run: Run) -> None:
    """`send` to who never reads ends in an error that says that it may have been delivered."""
    raised: list[BrokenError] = []

    async def handler(connection: AsyncConnection) -> None:
        try:
            while True:
                await connection.send(b"x" * 60_000)
        except BrokenError as error:
            raised.append(error)

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", handler, limits=SHORT) as listener:
            with dialled(listener.url) as raw:
                raw.sendall(preface())
                await until(lambda: bool(raised))

    run(main())
    assert raised[0].delivered == "maybe"


def test_who_is_idle_or_not_read_is_left_alone(run: Run) -> None:
    """Silence between two messages is no stall, nor is a peer that this side keeps waiting."""
    limits = ConnectionLimits(stall_timeout=SHORT_S, max_inbox_bytes=100_000)
    go = asyncio.Event()

    async def handler(connection: AsyncConnection) -> None:
        await go.wait()
        async for frames in connection:
            await connection.send(str(len(frames[0])).encode())

    async def main() -> None:
        async with (
            listen("tcp://127.0.0.1:0", handler, limits=limits) as listener,
            connect(listener.url) as idle,
            connect(listener.url) as busy,
        ):
            sending = asyncio.create_task(busy.send_many([b"x" * 60_000] * 100))
            await asyncio.sleep(4 * SHORT_S)  # for longer than a stall may last
            go.set()
            await sending
            assert [await busy.recv() for _ in range(100)] == [[b"60000"]] * 100
            await idle.send(b"still here")
            assert await idle.recv() == [b"10"]

    run(main())


def test_a_loop_that_was_held_up_blames_nobody(run: Run) -> None:
    """What came while the own program computed is read before the peer is judged."""
    stall_s = 1.0
    limits = ConnectionLimits(stall_timeout=stall_s)
    taken: list[int] = []

    async def handler(connection: AsyncConnection) -> None:
        async for frames in connection:
            taken.append(len(frames[0]))  # noqa: PERF401 - seen while they come

    async def main() -> None:
        async with listen("tcp://127.0.0.1:0", handler, limits=limits) as listener:
            with dialled(listener.url) as raw:
                raw.sendall(preface() + announced(60_000) + bytes(20_000))
                await until(lambda: listener.connections == 1)
                await asyncio.sleep(stall_s / 2)  # it is within a message, and was looked at
                raw.sendall(bytes(40_000))
                time.sleep(3 * stall_s)  # noqa: ASYNC251 - the program computes
                await until(lambda: bool(taken) or listener.connections == 0)

    run(main())
    assert taken == [60_000]


def test_a_dialled_peer_that_stops_is_given_up_where_asked_for(run: Run) -> None:
    """A client that sets the time gets an error in place of waiting for ever."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = "tcp://{}:{}".format(*server.getsockname())
            accepting = asyncio.create_task(asyncio.to_thread(server.accept))
            opening = asyncio.create_task(open_short(url))
            raw, _ = await accepting
            with raw:
                raw.sendall(preface() + announced(10) + b"half")
                connection = await opening
                with pytest.raises(BrokenError, match="stall_timeout"):
                    await connection.recv()
                await connection.aclose()

    async def open_short(url: str) -> AsyncConnection:
        return await connect(url, limits=SHORT)

    run(main())


def test_strangers_have_a_time_and_known_peers_have_none() -> None:
    """By default nobody who is known is cut off while it computes."""
    assert ConnectionLimits().stall_timeout_of(known=True) == math.inf
    assert ConnectionLimits().stall_timeout_of(known=False) == 30
    assert ConnectionLimits(stall_timeout=math.inf).stall_timeout_of(known=False) == math.inf
    for wrong in (0, -1, math.nan):
        with pytest.raises(ConfigError):
            ConnectionLimits(stall_timeout=wrong)
