"""What all connections of a process hold together is bounded, and everything still arrives."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from forebay.errors import ConfigError
from forebay.transport import (
    AsyncConnection,
    connect,
    listen,
    native,
    process_metrics,
    set_process_limits,
)
from tests.loops import Run
from tests.transport.loops import echo, until
from tests.transport.message_bytes import message, preface, resident_bytes
from tests.transport.test_message_hazards import dialled

ROOT = Path(__file__).parents[2]
CONNECTIONS = 48
MESSAGES = 100
SIZE = 48 << 10
TOTAL = CONNECTIONS * MESSAGES * SIZE
"""220 MiB; without a limit 4 MiB of it would lie in the inbox of each connection."""
BYTES_MAX = 8 << 20
STEP = 64 << 10
RECEIVE = 256 << 10
TIMEOUT_S = 40.0


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    """Put the limits of this process back."""
    before = process_metrics()
    yield
    set_process_limits(max_bytes=before["max_bytes"], max_connections=before["max_connections"])
    after = process_metrics()
    assert (after["held_bytes"], after["connections"]) == (0, 0), "a connection was miscounted"


@contextlib.asynccontextmanager
async def peers(what: str, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process with many connections; it must have ended well at the end."""
    numbers = map(str, (CONNECTIONS, MESSAGES, SIZE))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.transport.many_peers", what, url, *numbers),
        cwd=ROOT,
        env=None,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"connected\n"
        yield process
        assert await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_slow_readers_hold_no_more_than_the_process_may(scheme: str, tmp_path: Path) -> None:
    """Memory of a server is bounded by its own limit, not by how many clients write to it."""
    opened: list[AsyncConnection] = []
    go = asyncio.Event()

    async def handler(connection: AsyncConnection) -> None:
        opened.append(connection)
        await go.wait()
        got = 0
        for number in range(MESSAGES):
            (frame,) = await connection.recv()
            assert frame[0] == number
            got += len(frame)
        await connection.send(str(got).encode())
        async for _ in connection:
            raise AssertionError("nothing more was sent")

    async def main() -> None:
        set_process_limits(max_bytes=BYTES_MAX)
        url = "tcp://127.0.0.1:0" if scheme == "tcp" else f"unix://{tmp_path}/s"
        most = BYTES_MAX + CONNECTIONS * (STEP + SIZE + RECEIVE)
        before, held_back = resident_bytes(), process_metrics()["held_back"]
        async with listen(url, handler) as listener, peers("write", listener.url) as process:

            def held() -> list[int]:
                return [one.metrics()["inbox_bytes"] for one in opened]

            # Nobody is starved: each holds messages when reading stops.
            await until(lambda: len(opened) == CONNECTIONS and min(held()) >= STEP)
            assert sum(held()) <= most
            assert process_metrics()["held_back"] > held_back
            assert resident_bytes() - before < 2 * most
            go.set()
            assert process.stdout is not None
            assert await process.stdout.readline() == f"{TOTAL}\n".encode()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_writers_to_slow_readers_wait_sooner(run: Run) -> None:
    """Above the limit a sender waits above the low mark, and goes on when its own peer reads."""
    opened: list[AsyncConnection] = []

    async def handler(connection: AsyncConnection) -> None:
        opened.append(connection)
        for number in range(MESSAGES):
            await connection.send([bytes([number]) * (SIZE // 2)] * 2)
        await connection.recv()

    async def main() -> None:
        set_process_limits(max_bytes=1)
        most = (128 << 10) + SIZE + 200
        async with (
            listen("tcp://127.0.0.1:0", handler) as listener,
            connect(listener.url) as reader,
        ):
            await until(lambda: bool(opened) and opened[0].metrics()["outbox_bytes"] > 0)
            for number in range(MESSAGES):
                assert opened[0].metrics()["outbox_bytes"] <= most
                frames = await reader.recv()
                assert [frame[:1] for frame in frames] == [bytes([number])] * 2
            await reader.send(b"read")

    run(main())


def test_readers_that_wake_up_late_get_everything(tmp_path: Path) -> None:
    """What waits for many peers that do not read is bounded; once they read, all of it comes."""
    opened: list[AsyncConnection] = []

    async def handler(connection: AsyncConnection) -> None:
        opened.append(connection)
        for number in range(MESSAGES):
            await connection.send(bytes([number]) * SIZE)
        (counted,) = await connection.recv()
        assert int(counted) == MESSAGES * SIZE

    def waiting() -> list[int]:
        return [one.metrics()["outbox_bytes"] for one in opened]

    async def main() -> None:
        set_process_limits(max_bytes=BYTES_MAX)
        before = resident_bytes()
        # The buffers of a Unix socket are small, so that it is the process that holds what waits.
        async with (
            listen(f"unix://{tmp_path}/s", handler) as listener,
            peers("read", listener.url) as process,
        ):
            await until(lambda: sum(waiting()) > BYTES_MAX and min(waiting()) > 0)
            most = BYTES_MAX + CONNECTIONS * ((128 << 10) + SIZE + STEP)
            assert sum(waiting()) <= most
            assert resident_bytes() - before < 2 * most
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"\n")
            assert await process.stdout.readline() == f"{TOTAL}\n".encode()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_messages_larger_than_the_limit_pass_in_both_directions(run: Run) -> None:
    """No limit stops a message that was begun: echoes go on where nothing may be held at all."""
    large = b"m" * (5 << 20)

    async def exchange(url: str) -> None:
        async with connect(url) as connection:
            for _ in range(3):
                await connection.send([large, b"small"])
                frames = await connection.recv()
                assert [len(frame) for frame in frames] == [len(large), 5]

    async def main() -> None:
        set_process_limits(max_bytes=1)
        async with listen("tcp://127.0.0.1:0", echo) as listener, asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(exchange(listener.url))

    run(main())


def test_a_listener_pauses_at_the_limit_of_connections(run: Run) -> None:
    """A crowd costs no more descriptors than it may; who waits is let in when somebody leaves."""
    opened: list[AsyncConnection] = []

    async def handler(connection: AsyncConnection) -> None:
        opened.append(connection)
        async for frames in connection:
            await connection.send(frames)

    async def main() -> None:
        set_process_limits(max_connections=2)
        turned_back = process_metrics()["turned_back"]
        async with listen("tcp://127.0.0.1:0", handler) as listener:
            with dialled(listener.url) as first, dialled(listener.url) as second:
                for raw in (first, second):
                    raw.sendall(preface())
                await until(lambda: len(opened) == 2)
                with dialled(listener.url) as third:
                    third.sendall(preface() + message(b"let me in"))
                    await until(lambda: process_metrics()["turned_back"] > turned_back)
                    assert len(opened) == 2
                    first.close()
                    await until(lambda: len(opened) == 3)
                    third.settimeout(TIMEOUT_S)
                    answer = await asyncio.to_thread(third.recv, 1 << 10)
                    assert answer
                    assert process_metrics()["connections"] == 2

    run(main())


def test_a_native_listener_pauses_too() -> None:
    """Its thread is woken by nobody when a connection elsewhere ends, and looks by itself."""
    set_process_limits(max_connections=2)
    turned_back = process_metrics()["turned_back"]
    with (
        listen("tcp://127.0.0.1:0", native=native.Echo()) as listener,
        dialled(listener.url) as first,
        dialled(listener.url) as second,
    ):
        for raw in (first, second):
            raw.sendall(preface() + message(b"in"))
            assert exactly(raw, len(preface() + message(b"in")))
        with dialled(listener.url) as third:
            third.sendall(preface() + message(b"let me in"))
            third.settimeout(0.3)  # three times as long as a pause
            with pytest.raises(TimeoutError):
                third.recv(1)
            assert process_metrics()["turned_back"] > turned_back
            first.close()
            third.settimeout(TIMEOUT_S)
            answer = exactly(third, len(preface() + message(b"let me in")))
            assert answer.endswith(b"let me in")


def exactly(raw: socket.socket, count: int) -> bytes:
    """So many bytes of a socket."""
    got = b""
    while len(got) < count:
        more = raw.recv(count - len(got))
        assert more, "it was closed"
        got += more
    return got


def test_the_limits_are_found_and_checked() -> None:
    """Without a word the limits fit the machine; a wrong one is refused and changes nothing."""
    found = process_metrics()
    assert 1 << 20 < found["max_bytes"] < 1 << 50
    assert found["max_connections"] >= 16
    for wrong in ({"max_bytes": 0}, {"max_connections": 0}, {"max_bytes": "much"}):
        with pytest.raises(ConfigError):
            set_process_limits(**wrong)
    assert process_metrics() == found
    set_process_limits(max_bytes="1MiB")
    assert process_metrics()["max_bytes"] == 1 << 20
