"""Messages through shared memory: what is lent, what comes back, and what survives whom."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np
import pytest

from forebay import Arena
from forebay._core import MessageConnection
from forebay.errors import BrokenError, ClosedError, ConfigError, LimitError
from forebay.transport import AsyncConnection, Connection, connect, listen, new_event_loop

TIMEOUT_S = 20.0
LONG = 100_000
LENT_FRAMES_MAX = 1024


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"shm://{tmp_path}/own/a.sock"


@contextlib.asynccontextmanager
async def both_ends(url: str) -> AsyncIterator[tuple[AsyncConnection, AsyncConnection]]:
    """A connection and its other end, in one process."""
    accepted: asyncio.Queue[AsyncConnection] = asyncio.Queue()
    done = asyncio.Event()

    async def handler(connection: AsyncConnection) -> None:
        accepted.put_nowait(connection)
        await done.wait()

    async with (
        asyncio.timeout(TIMEOUT_S),
        listen(url, handler) as listener,
        connect(listener.url) as connection,
    ):
        yield connection, await accepted.get()
        done.set()


@contextlib.contextmanager
def peer_program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "tests.transport.shm_peer", *arguments]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def mapped() -> int:
    """Mappings of connections' memory in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:forebay:connection")


def address(buffer: object) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


def test_a_kept_frame_is_read_only_and_stays_as_it_was(url: str) -> None:
    """Its memory is not used for another frame before it is dropped."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            kept = []
            for number in range(20):
                await one.send(np.full(LONG, number, np.uint8))
                kept += await other.recv()
            assert one.metrics()["lent_frames"] == 20
            assert all(memoryview(frame).readonly for frame in kept)
            assert [set(bytes(frame)) for frame in kept] == [{number} for number in range(20)]

    asyncio.run(main())


def test_dropped_frames_come_back_and_their_memory_is_used_again(url: str) -> None:
    """Ten thousand long frames in turn need the memory of one."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            seen = set()
            for _ in range(10_000):
                await one.send(bytes(LONG))
                [frame] = await other.recv()
                seen.add(address(frame))
                del frame
            assert one.metrics()["lent_frames"] == 0
            assert len(seen) == 1

    asyncio.run(main())


def test_a_part_of_a_frame_keeps_it(url: str) -> None:
    """A slice of an array made from a frame is as good as the frame."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            await one.send(np.arange(LONG, dtype=np.uint64))
            [frame] = await other.recv()
            part = np.frombuffer(frame, np.uint64)[10:20]
            del frame
            await one.send(np.zeros(LONG, np.uint64))
            assert list(part) == list(range(10, 20))
            assert one.metrics()["lent_frames"] == 2

    asyncio.run(main())


def test_allocated_memory_is_sent_without_a_copy(url: str) -> None:
    """The peer reads where the sender wrote; a part of it, through an array, is the same."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            buffer = one.allocate(2 * LONG)
            array = np.frombuffer(buffer, np.uint8)
            array[:] = 1
            await one.send([memoryview(buffer)[LONG:], array[1 : LONG + 1]])
            got = await other.recv()
            array[:] = 2  # against the rule, and seen by the peer: nothing was copied
            assert [set(bytes(frame)) for frame in got] == [{2}, {2}]
            assert [len(frame) for frame in got] == [LONG, LONG]

    asyncio.run(main())


def test_a_long_frame_is_copied_once_or_not_at_all(url: str) -> None:
    """Once into the region on its way out, never on its way in; and never where it lies there."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            await one.send(bytes(LONG))
            kept = await other.recv()
            assert LONG <= one.metrics()["copied_bytes"] < LONG + 256
            buffer = one.allocate(LONG)
            await one.send([buffer] * 10)
            kept += await other.recv()
            assert one.metrics()["copied_bytes"] < LONG + 256
            assert other.metrics()["copied_bytes"] < 1024, "headers and names alone"
            assert len(kept) == 11

    asyncio.run(main())


def test_allocated_memory_is_used_again_when_both_sides_have_dropped_it(url: str) -> None:
    """Its pages stay mapped on both sides."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            buffer = one.allocate(LONG)
            first = address(buffer)
            await one.send(buffer)
            del buffer
            got = await other.recv()
            buffer = one.allocate(LONG)
            assert address(buffer) != first, "the peer still reads it"
            del buffer, got
            assert address(one.allocate(LONG)) == first

    asyncio.run(main())


def test_what_lies_in_an_arena_is_sent_without_a_copy(url: str) -> None:
    """Arrays, parts of them, memoryviews and buffers; the arena's memory is mapped by the peer."""

    async def main() -> None:
        with Arena("1GiB") as arena:
            async with both_ends(url) as (one, other):
                array = arena.empty((4, LONG), np.uint8)
                buffer = arena.allocate(LONG)
                array[:], np.frombuffer(buffer, np.uint8)[:] = 1, 1
                await one.send([array, array[2], memoryview(array)[1:], buffer, memoryview(buffer)])
                got = await other.recv()
                assert one.metrics()["copied_bytes"] < 1024
                array[:], np.frombuffer(buffer, np.uint8)[:] = 2, 2  # against the rule, and seen
                assert [set(bytes(frame)) for frame in got] == [{2}] * 5
                assert [len(frame) // LONG for frame in got] == [4, 1, 3, 1, 1]
                big = arena.empty(100 << 20, np.uint8)  # a chunk of its own
                big[-1] = 7
                await one.send(big[1000:])
                [frame] = await other.recv()
                assert memoryview(frame)[-1] == 7
                del got, frame

    asyncio.run(main())


def test_a_block_of_an_arena_is_kept_while_the_peer_reads_it(url: str) -> None:
    """Also after the connection: a view ends by its release, never with a socket."""

    async def main() -> None:
        with Arena("1GiB") as arena:
            async with both_ends(url) as (one, other):
                array = arena.empty(LONG, np.uint8)
                array[:] = 5
                await one.send(array)
                [frame] = await other.recv()
                del array
            assert arena.stats()["blocks"] == 1
            again = arena.empty(LONG, np.uint8)
            again[:] = 9
            assert set(bytes(frame)) == {5}
            del frame, again
            async with both_ends(url):
                pass
            assert arena.stats()["blocks"] == 0

    asyncio.run(main())


def test_a_block_of_an_arena_comes_back_from_a_dead_peer(url: str) -> None:
    """Its process has ended, so nobody reads it."""

    async def main() -> None:
        arena = Arena("1GiB")
        died = asyncio.Event()

        async def handler(connection: AsyncConnection) -> None:
            await connection.send(arena.empty(LONG, np.uint8))
            with pytest.raises(BrokenError):
                await connection.recv()
            died.set()

        async with asyncio.timeout(TIMEOUT_S), listen(url, handler) as listener:
            with peer_program("hold", listener.url, "1") as peer:
                assert await asyncio.to_thread(peer.stdout.readline) == "1\n"
                assert arena.stats()["blocks"] == 1
                peer.kill()
                await died.wait()
                await asyncio.to_thread(peer.wait)
        async with both_ends(url):
            pass
        assert arena.stats()["blocks"] == 0
        arena.close()

    asyncio.run(main())


def test_a_full_arena_takes_back_what_ended_connections_lent(url: str) -> None:
    """What a peer has dropped since is memory again as soon as it is needed."""

    async def main() -> None:
        with Arena(4 << 20) as arena:
            async with both_ends(url) as (one, other):
                array = arena.empty(3 << 20, np.uint8)
                await one.send(array)
                [frame] = await other.recv()
                del array
            with pytest.raises(LimitError):
                arena.empty(3 << 20, np.uint8)
            del frame
            assert len(arena.empty(3 << 20, np.uint8)) == 3 << 20

    asyncio.run(main())


def test_a_full_arena_takes_back_what_open_connections_have_released(url: str) -> None:
    """The sender has not looked since."""

    async def main() -> None:
        with Arena(4 << 20) as arena:
            async with both_ends(url) as (one, other):
                array = arena.empty(3 << 20, np.uint8)
                await one.send(array)
                [frame] = await other.recv()
                del array, frame
                assert len(arena.empty(3 << 20, np.uint8)) == 3 << 20

    asyncio.run(main())


def test_an_arena_has_back_what_a_closed_peer_never_received(url: str) -> None:
    """Though the peer's process goes on: it cannot open the names any more."""

    async def main() -> None:
        with Arena("64MiB") as arena:
            async with both_ends(url) as (one, other):
                for _ in range(12):  # fills the inbox, so that what follows stays in the ring
                    await one.send(arena.empty(1 << 20, np.uint8))
                await other.recv()
                for _ in range(12):
                    await one.send(arena.empty(1 << 20, np.uint8))
            del one, other  # with the inbox
            gc.collect()
            async with both_ends(url):
                pass
            assert arena.stats()["blocks"] == 0

    asyncio.run(main())


def test_a_sender_can_ask_whether_its_memory_is_still_read(url: str) -> None:
    """Memory that was sent may be written again once the peer has dropped every frame of it."""

    async def main() -> None:
        with Arena("1GiB") as arena:
            async with both_ends(url) as (one, other):
                buffer = one.allocate(2 * LONG)
                array = arena.empty(LONG, np.uint8)
                beside = arena.empty(LONG, np.uint8)
                assert not one.is_lent(buffer)
                await one.send([memoryview(buffer)[LONG:], memoryview(buffer)[:LONG], array])
                first, second, third = await other.recv()
                assert one.is_lent(buffer) and one.is_lent(array[5:10])  # noqa: PT018
                assert not one.is_lent(beside)
                del first, third
                assert one.is_lent(buffer), "the other half is"
                assert not one.is_lent(array)
                del second
                assert not one.is_lent(buffer)
                with pytest.raises(ConfigError):
                    one.is_lent([])
            with pytest.raises(ClosedError):
                one.is_lent(array)
            del array, beside

    asyncio.run(main())


def test_a_freed_buffer_is_no_longer_sent_by_its_address(url: str) -> None:
    """Other memory at the place of a freed block is copied as any other."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            buffer = one.allocate(LONG)
            buffer.free()
            await one.send(b"x" * LONG)
            [frame] = await other.recv()
            assert bytes(frame) == b"x" * LONG

    asyncio.run(main())


def test_only_shared_memory_is_allocated(tmp_path: Path) -> None:
    """Over other connections it says so; above the region's size too."""

    async def main() -> None:
        async with both_ends(f"unix://{tmp_path}/own/a.sock") as (one, _):
            with pytest.raises(ConfigError, match="shm://"):
                one.allocate(LONG)
        async with both_ends(f"shm://{tmp_path}/own/b.sock") as (one, _):
            with pytest.raises(LimitError, match="region_bytes_max"):
                one.allocate(300 << 20)

    asyncio.run(main())


def test_where_too_much_is_lent_frames_are_copied_as_over_a_socket(url: str) -> None:
    """A receiver that keeps everything stops nobody: further frames take memory of its own."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            kept = []
            for number in range(LENT_FRAMES_MAX + 3):
                await one.send([b"head", np.full(70_000, number % 251, np.uint8)])
                kept.append((await other.recv())[1])
            assert one.metrics()["lent_frames"] == LENT_FRAMES_MAX
            assert [memoryview(frame).readonly for frame in kept[-4:]] == [
                True,
                False,
                False,
                False,
            ]
            assert all(bytes(kept[at]) == bytes([at % 251]) * 70_000 for at in (0, 500, 1023, 1026))

    asyncio.run(main())


def test_a_message_larger_than_the_region_goes_through_the_ring(url: str) -> None:
    """Its frame has memory of the receiver."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            sending = asyncio.create_task(_send(one, bytes(257 << 20)))
            [frame] = await other.recv()
            await sending
            assert len(frame) == 257 << 20
            assert not memoryview(frame).readonly

    asyncio.run(main())


def test_a_killed_receiver_leaves_nothing_lent(url: str) -> None:
    """Its death ends the connection; the memory goes with it."""

    async def main() -> None:
        before = mapped()
        ended = asyncio.get_running_loop().create_future()

        async def handler(connection: AsyncConnection) -> None:
            for _ in range(5):
                await connection.send(bytes(LONG))
            with pytest.raises(BrokenError):
                await connection.recv()
            assert connection.closed
            ended.set_result(connection.metrics()["lent_frames"])

        async with asyncio.timeout(TIMEOUT_S), listen(url, handler) as listener:
            with peer_program("hold", listener.url, "5") as peer:
                assert await asyncio.to_thread(peer.stdout.readline) == "5\n"
                assert mapped() > before
                peer.kill()
                assert await ended == 5, "until it is closed nobody else gets them"
        assert mapped() == before

    asyncio.run(main())


def test_frames_of_a_killed_sender_stay_readable(url: str) -> None:
    """Its memory lives for as long as somebody reads it."""

    async def main() -> None:
        before = mapped()
        got: asyncio.Queue[object] = asyncio.Queue()

        async def handler(connection: AsyncConnection) -> None:
            got.put_nowait((await connection.recv())[0])
            with pytest.raises(BrokenError):
                await connection.recv()
            got.put_nowait(None)

        async with asyncio.timeout(TIMEOUT_S), listen(url, handler) as listener:
            with peer_program("give", listener.url, "1024000") as peer:
                frame = await got.get()
                peer.kill()
                await asyncio.to_thread(peer.wait)
                assert await got.get() is None
        assert bytes(frame) == bytes(range(256)) * 4000
        assert mapped() > before
        del frame
        assert mapped() == before

    asyncio.run(main())


def test_what_was_sent_before_a_close_arrives(url: str) -> None:
    """Closing takes nothing back, neither out of the ring nor out of the region."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            for number in range(50):
                await one.send([bytes([number]) * LONG, b"short"])
            await one.aclose()
            got = [message async for message in other]
            assert [bytes(frame[0]) for frame in got] == [bytes([n]) * LONG for n in range(50)]

    asyncio.run(main())


def test_a_forked_child_gives_nothing_back(url: str) -> None:
    """Frames are their process's: a child that drops its copies ends none of them."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            await one.send(b"x" * LONG)
            got = await other.recv()
            child = os.fork()
            if child == 0:
                got.clear()
                other.abort()
                os._exit(0)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert status == 0
            assert one.metrics()["lent_frames"] == 1
            assert bytes(got[0]) == b"x" * LONG
            await one.send(b"still there")
            assert await other.recv() == [b"still there"]

    asyncio.run(main())


def test_our_own_loop_steps_it_too(url: str) -> None:
    """Its selector calls back for the one descriptor that is watched."""

    async def main() -> None:
        async with both_ends(url) as (one, other):
            for size in (10, LONG, 1_000_000):
                for _ in range(50):
                    await one.send(bytes(size))
                    await other.send(await other.recv())
                    assert len((await one.recv())[0]) == size

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def test_without_descriptors_opening_fails_and_leaves_nothing() -> None:
    """The error says which call was refused."""
    ours, theirs = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = os.listdir("/proc/self/fd")
    used = max(int(name) for name in there if os.path.lexists(f"/proc/self/fd/{name}"))
    with ours, theirs, filled_up_to(used):
        for room in range(2, 6):  # the socket, and some of what it needs besides
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, hard))
            try:
                with pytest.raises(BrokenError, match=r"memfd|eventfd|dup|pidfd|epoll"):
                    MessageConnection(os.dup(ours.fileno()), peer="x", shared=True)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def filled_up_to(last: int) -> Iterator[None]:
    """No descriptor below this one is free."""
    made = [os.open(os.devnull, os.O_RDONLY)]
    while made[-1] < last:
        made.append(os.open(os.devnull, os.O_RDONLY))
    os.close(made.pop())
    try:
        yield
    finally:
        for descriptor in made:
            os.close(descriptor)


def test_threads_that_wait_on_one_connection_wake_each_other(url: str) -> None:
    """One bell wakes a receiver and several senders that wait for room."""
    messages, size, senders = 150, 60_000, 3
    served: list[int] = []

    async def handler(connection: AsyncConnection) -> None:
        async for message in connection:
            served.append(len(message))
            await connection.send(message)

    def send(connection: Connection, fill: int) -> None:
        for _ in range(messages):
            connection.send(bytes([fill]) * size, timeout=TIMEOUT_S)

    def use(url: str) -> list[int]:
        with connect(url) as connection:
            threads = [
                threading.Thread(target=send, args=(connection, fill)) for fill in range(senders)
            ]
            for thread in threads:
                thread.start()
            got = [connection.recv(timeout=TIMEOUT_S)[0][0] for _ in range(messages * senders)]
            for thread in threads:
                thread.join()
            return got

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), listen(url, handler) as listener:
            got = await asyncio.to_thread(use, listener.url)
        assert sorted(got) == sorted(list(range(senders)) * messages)

    asyncio.run(main())


async def _send(connection: AsyncConnection, frames: object) -> None:
    await connection.send(frames)
