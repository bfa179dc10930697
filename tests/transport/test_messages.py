"""Messages over real sockets, on each loop and for threads."""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.errors import (
    BrokenError,
    BusyError,
    ClosedError,
    ConfigError,
    DeadlineError,
    LimitError,
    ProtocolError,
)
from forebay.memory import Arena
from forebay.testing.chaos import nothing_left
from forebay.transport import AsyncConnection, Connection, ConnectionLimits, connect, listen
from tests.loops import Run
from tests.transport.loops import echo, until
from tests.transport.message_bytes import resident_bytes

TIMEOUT_S = 20.0
SIZES = (0, 1, 23, 1_000, 65_535, 65_536, 65_537, 1_000_000, 10_000_000)
BIG = 1_000_000


@pytest.fixture(params=["tcp", "unix"])
def stream_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the kernel carries every byte; what lies in shared memory has tests of its own."""
    return "tcp://127.0.0.1:0" if request.param == "tcp" else f"unix://{tmp_path}/own/a.sock"


@pytest.fixture(params=["tcp", "unix", "shm"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a listener may listen."""
    if request.param == "tcp":
        return "tcp://127.0.0.1:0"
    return f"{request.param}://{tmp_path}/own/a.sock"


@pytest.fixture
def socket_url(url: str) -> str:
    """Where bytes go through a socket."""
    if url.startswith("shm:"):
        pytest.skip("long frames stay in the sender's memory")
    return url


@contextlib.asynccontextmanager
async def served(url: str, **options: Any) -> AsyncIterator[AsyncConnection]:
    """A connection to an echo."""
    async with listen(url, echo) as listener, connect(listener.url, **options) as connection:
        yield connection


async def ask(connection: AsyncConnection) -> Any:
    """Send something, and wait for its echo."""
    await connection.send(b"x")
    return await connection.recv()


def as_bytes(message: list[Any]) -> list[bytes]:
    return [bytes(frame) for frame in message]


def test_messages_of_all_sizes_come_back(run: Run, url: str) -> None:
    async def main() -> None:
        async with served(url) as connection:
            for size in SIZES:
                sent = os.urandom(size)
                await connection.send(sent)
                assert as_bytes(await connection.recv()) == [sent], size
            several = [os.urandom(size) for size in SIZES]
            await connection.send(several)
            assert as_bytes(await connection.recv()) == several

    with nothing_left():
        run(main())


@pytest.mark.parametrize("count", [1, 2, 63, 64, 1_000, 65_535])
def test_a_message_may_have_many_frames(run: Run, url: str, count: int) -> None:
    async def main() -> None:
        sent = [b"%d" % number for number in range(count)]
        async with served(url) as connection:
            await connection.send(sent)
            assert await connection.recv() == sent

    run(main())


def test_any_contiguous_buffer_is_a_frame(run: Run, stream_url: str) -> None:
    async def main() -> None:
        numbers = np.arange(BIG, dtype=np.int64)
        frames = [
            numbers,
            array.array("d", [1.5, 2.5]),
            memoryview(b"abc"),
            bytearray(b"x" * 70_000),
            numbers.reshape(1000, -1)[10],
            np.float32(2.0),
        ]
        async with served(stream_url) as connection:
            await connection.send(frames)
            got = await connection.recv()
            assert as_bytes(got) == [memoryview(frame).tobytes() for frame in frames]
            assert np.frombuffer(got[0], np.int64).flags.writeable
            assert np.frombuffer(got[0], np.int64).ctypes.data % 64 == 0
            with pytest.raises(BufferError, match="C-contiguous"):
                await connection.send(numbers[::2])
            await connection.send(b"still usable")
            assert await connection.recv() == [b"still usable"]

    run(main())


def test_what_is_wrong_is_refused_before_anything_is_sent(run: Run, url: str) -> None:
    async def main() -> None:
        async with served(url, limits=ConnectionLimits(max_message_bytes=1_000)) as connection:
            with pytest.raises(ConfigError, match="at least one frame"):
                await connection.send([])
            with pytest.raises(LimitError) as caught:
                await connection.send(bytes(1_001))
            assert (caught.value.limit, caught.value.value) == (1_000, 1_001)
            with pytest.raises(LimitError, match="max_frames"):
                await connection.send([b""] * 65_536)
            with pytest.raises(TypeError):
                await connection.send("text")
            with pytest.raises(ConfigError):
                connection.recv_many(0)
            assert connection.metrics()["sent_messages"] == 0

    run(main())


def test_a_limit_of_the_peer_holds_too(run: Run, url: str) -> None:
    async def main() -> None:
        limits = ConnectionLimits(max_message_bytes=1_000)
        async with (
            listen(url, echo, limits=limits) as listener,
            connect(listener.url) as connection,
        ):
            with pytest.raises(LimitError, match="1000"):
                await connection.send(bytes(1_001))

    run(main())


def test_many_messages_go_in_few_calls_and_are_taken_together(run: Run, url: str) -> None:
    async def main() -> None:
        sent = [[b"%d" % number, b"x" * number] for number in range(500)]
        async with served(url) as connection:
            await connection.send_many(sent)
            got: list[list[bytes]] = []
            while len(got) < len(sent):
                some = await connection.recv_many(100)
                assert 1 <= len(some) <= 100
                got += some
            assert got == sent

    run(main())


def test_a_cancelled_recv_loses_nothing(run: Run, url: str) -> None:
    async def main() -> None:
        async with served(url) as connection:
            for number in range(100):
                task = asyncio.create_task(connection.recv())
                await asyncio.sleep(0)
                await connection.send(b"%d" % number)
                for _ in range(number % 10):
                    await asyncio.sleep(0)
                task.cancel()  # before the answer, with it, or after it
                try:
                    got = await task
                except asyncio.CancelledError:
                    got = await connection.recv()
                assert got == [b"%d" % number]

    run(main())


def test_two_tasks_in_recv_are_one_too_many(run: Run, url: str) -> None:
    async def main() -> None:
        async with served(url) as connection:
            first = asyncio.create_task(connection.recv())
            await asyncio.sleep(0)
            with pytest.raises(BusyError, match="another task"):
                await connection.recv()
            await connection.send(b"for the first")
            assert await first == [b"for the first"]

    run(main())


def test_a_cancelled_send_goes_out_whole_and_gives_its_buffers_back(
    run: Run, stream_url: str
) -> None:
    async def main() -> None:
        taken = asyncio.Event()

        async def later(connection: AsyncConnection) -> None:
            await taken.wait()
            await echo(connection)

        async with listen(stream_url, later) as listener, connect(listener.url) as connection:
            await connection.send(bytes(5_000_000))  # more than its inbox may hold
            buffer = bytearray(b"a" * 20_000_000)
            task = asyncio.create_task(_send(connection, buffer))
            await asyncio.sleep(0.01)
            assert not task.done(), "nobody reads"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            buffer[:] = b"b" * len(buffer)
            buffer.clear()  # no export is left
            taken.set()
            await connection.recv()
            [frame] = await connection.recv()
            assert bytes(frame) == b"a" * 20_000_000

    run(main())


async def _send(connection: AsyncConnection, frames: Any) -> None:
    await connection.send(frames)


def test_send_waits_while_the_peer_does_not_read(run: Run, url: str) -> None:
    async def main() -> None:
        reading = asyncio.Event()

        async def late(connection: AsyncConnection) -> None:
            await reading.wait()
            async for _ in connection:
                pass

        async with listen(url, late) as listener, connect(listener.url) as connection:
            sent = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    while True:
                        await connection.send(b"x" * 50_000)
                        sent += 1
            held = connection.metrics()["outbox_bytes"]
            assert 0 < held < 1 << 20
            assert sent < 1_000
            reading.set()
            await connection.send(b"goes on")

    run(main())


def test_a_receiver_that_lags_stops_the_reading(run: Run, url: str) -> None:
    async def main() -> None:
        async with served(url, limits=ConnectionLimits(max_inbox_bytes=100_000)) as connection:
            for _ in range(50):
                await connection.send(b"x" * 10_000)
            await until(lambda: connection.metrics()["inbox_bytes"] >= 100_000)
            await asyncio.sleep(0.05)
            assert connection.metrics()["inbox_bytes"] < 500_000
            for _ in range(50):
                assert await connection.recv() == [b"x" * 10_000]

    run(main())


def test_closed_is_seen_though_nobody_reads(run: Run, url: str) -> None:
    async def main() -> None:
        async def brief(connection: AsyncConnection) -> None:
            await connection.send(b"last words")

        async with listen(url, brief) as listener, connect(listener.url) as connection:
            await until(lambda: connection.closed)
            assert await connection.recv() == [b"last words"]
            with pytest.raises(BrokenError) as caught:
                await connection.recv()
            assert caught.value.delivered == "maybe"

    run(main())


def test_waiters_learn_of_a_close_at_once(run: Run, url: str) -> None:
    async def main() -> None:
        async with listen(url, echo) as listener:
            connection = await connect(listener.url)
            waiter = asyncio.create_task(connection.recv())
            await asyncio.sleep(0)
            connection.abort()
            with pytest.raises(ClosedError):
                await waiter
            with pytest.raises(ClosedError):
                await connection.send(b"x")
            assert connection.closed
            await connection.aclose()

    run(main())


def test_a_token_lets_in_and_another_does_not(run: Run, url: str) -> None:
    async def main() -> None:
        async with listen(url, echo, token="secret") as listener:
            async with connect(listener.url, token="secret") as connection:
                await connection.send(b"in")
                assert await connection.recv() == [b"in"]
            for token in (None, "guess"):
                connection = await connect(listener.url, token=token)
                with pytest.raises((BrokenError, ProtocolError)):
                    await ask(connection)
                connection.abort()

    run(main())


def test_nobody_there_and_nobody_answers(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(BrokenError, match="is a server listening"):
            await connect("tcp://127.0.0.1:1")
        with pytest.raises(BrokenError):
            await connect(f"unix://{tmp_path}/none.sock")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with pytest.raises(DeadlineError, match=r"within 0\.1 s"):
                await connect(f"tcp://127.0.0.1:{port}", timeout=0.1)

    run(main())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("127.0.0.1:7000", "no scheme"),
        ("tcp://127.0.0.1", "a host and a port"),
        ("tcp://:7000", "a host and a port"),
        ("tcp://127.0.0.1:70000", "no number"),
        ("unix://run/a.sock", "three slashes"),
        ("http://127.0.0.1:80", "no scheme"),
    ],
)
def test_urls_that_name_nothing_are_refused(wrong: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        connect(wrong)


def test_other_machines_need_a_token_or_a_word() -> None:
    with pytest.raises(ConfigError, match="unprotected=True"):
        listen("tcp://0.0.0.0:0", echo)
    listen("tcp://0.0.0.0:0", echo, token="t")
    listen("tcp://0.0.0.0:0", echo, unprotected=True)


def test_long_frames_are_copied_on_neither_side(run: Run, stream_url: str) -> None:
    async def main() -> None:
        async with served(stream_url) as connection:
            frames = [bytes(BIG), np.zeros(BIG, np.uint8), bytes(200_000)]
            await connection.send(frames)
            await connection.recv()
            first = connection.metrics()["copied_bytes"]
            assert first <= 256 << 10, "at most what the receive buffer took before it was known"
            for _ in range(10):
                await connection.send(frames)
                await connection.recv()
            # Where the kernel takes nothing the header waits, and it is copied.
            assert connection.metrics()["copied_bytes"] - first <= 10 * 48

    run(main())


def test_one_kept_frame_keeps_no_other(run: Run) -> None:
    size, kept = 40_000_000, []

    async def main() -> None:
        async with served("tcp://127.0.0.1:0") as connection:
            column = bytes(size)
            await connection.send([column] * 5)
            message = await connection.recv()
            kept.append(message[2])
            full = resident()
            del message
            assert full - resident() > 3.9 * size

    run(main())
    assert len(kept[0]) == size


def resident() -> int:
    """Bytes in memory, without those that malloc keeps at the end of its heap to reuse them.

    What it takes from there stays there when it is freed, up to 64 MiB.
    """
    ctypes.CDLL(None).malloc_trim(0)
    return resident_bytes()


@contextlib.contextmanager
def serving(url: str) -> Iterator[str]:
    """An echo in a loop of another thread."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()
    found: list[str] = []

    async def main() -> None:
        async with listen(url, echo) as listener:
            found.append(listener.url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    try:
        assert ready.wait(TIMEOUT_S)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(TIMEOUT_S)
        loop.close()


def test_threads_have_a_face_of_their_own(url: str) -> None:
    with nothing_left(), serving(url) as where, connect(where) as connection:
        for size in SIZES:
            sent = os.urandom(size)
            connection.send([sent, b"end"])
            assert as_bytes(connection.recv(timeout=TIMEOUT_S)) == [sent, b"end"]
        with pytest.raises(DeadlineError):
            connection.recv(timeout=0.05)
        connection.send_many([b"1", b"2"])
        assert [connection.recv() for _ in range(2)] == [[b"1"], [b"2"]]


def test_threads_send_on_one_connection_without_mixing(url: str) -> None:
    with serving(url) as where, connect(where) as connection:

        def send(number: int) -> None:
            for size in (10, 70_000, 300_000):
                connection.send([bytes([number]) * size] * 2, timeout=TIMEOUT_S)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        seen = []
        for _ in range(8 * 3):
            first, second = as_bytes(connection.recv(timeout=TIMEOUT_S))
            assert first == second
            assert len(set(first)) == 1
            seen.append((first[0], len(first)))
        assert sorted(seen) == [(n, s) for n in range(8) for s in (10, 70_000, 300_000)]
        for thread in threads:
            thread.join()


def test_a_second_thread_in_recv_is_told_so_and_a_close_wakes_the_first(url: str) -> None:
    with serving(url) as where, connect(where) as connection:
        failed: list[BaseException] = []
        waiting = threading.Thread(target=_receive, args=(connection, failed))
        waiting.start()
        while True:
            with pytest.raises((BusyError, DeadlineError)) as caught:
                connection.recv(timeout=0.001)
            if caught.type is BusyError:
                break
        connection.abort()
        waiting.join(TIMEOUT_S)
        assert [type(error) for error in failed] == [ClosedError]


def _receive(connection: Connection, failed: list[BaseException]) -> None:
    while not failed:
        try:
            connection.recv()
        except BusyError:
            continue  # the other one was first
        except ClosedError as error:
            failed.append(error)


def test_long_frames_go_into_memory_that_the_caller_gives(run: Run, socket_url: str) -> None:
    async def main() -> None:
        given: list[Any] = []

        def allocate(nbytes: int) -> Any:
            given.append(np.zeros(nbytes, np.uint8))
            return given[-1]

        async with served(socket_url, allocate=allocate) as connection:
            for size in (100, 65_536, BIG):
                sent = [os.urandom(size), b"short", os.urandom(size)]
                await connection.send(sent)
                got = await connection.recv()
                assert as_bytes(got) == sent
                assert [frame for frame in got if type(frame) is not bytes] == given or size == 100
                given.clear()
            await connection.send_many([[bytes(BIG)], [b"x"], [bytes(70_000), b"y"]])
            got = [await connection.recv() for _ in range(3)]
            assert [len(frame) for message in got for frame in message] == [BIG, 1, 70_000, 1]

    run(main())


def test_an_arena_is_a_place_to_receive_into(run: Run, socket_url: str) -> None:
    async def main() -> None:
        arena = Arena("16MiB")
        async with served(socket_url, allocate=arena.allocate) as connection:
            sent = os.urandom(BIG)
            await connection.send(sent)
            [frame] = await connection.recv()
            assert type(frame) is type(arena.allocate(1))
            assert bytes(frame) == sent

    run(main())


def test_memory_of_another_size_is_reported_and_not_used(
    socket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda told: reported.append(str(told.exc_value)))
    with (
        serving(socket_url) as where,
        connect(where, allocate=lambda nbytes: bytearray(9)) as connection,
    ):
        sent = os.urandom(BIG)
        connection.send(sent)
        [frame] = connection.recv(timeout=TIMEOUT_S)
        assert bytes(frame) == sent
    assert reported == [f"memory for a frame of {BIG} bytes has 9; give exactly what is asked for"]


def test_what_stays_in_the_senders_memory_is_received_into_no_other(tmp_path: Path) -> None:
    url = f"shm://{tmp_path}/own/a.sock"
    with pytest.raises(ConfigError, match="stay in the sender's memory"):
        connect(url, allocate=bytearray)
    with pytest.raises(ConfigError, match="stay in the sender's memory"):
        listen(url, echo, allocate=bytearray)
