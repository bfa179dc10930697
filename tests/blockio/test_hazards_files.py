"""Ends of files, alignment, descriptors, order of syncs, and what a queue leaves behind."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio import FDATASYNC, FSYNC, OPERATION, READ, WRITE, BlockFile, Queue
from forebay.errors import BlockError, BusyError, ConfigError
from forebay.memory import Arena
from tests.blockio.alone import CALL, ROOT, alone, command
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, content, shuffled
from tests.blockio.pipes import PAUSES_S, feed, until
from tests.blockio.test_fork import in_child


def is_open(path: Path) -> bool:
    """Whether anybody still has the open file that `lock` locked."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def lock(file: BlockFile) -> None:
    """Lock the open file, for as long as the process or the kernel has it."""
    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("face", ["blocking", "futures"])
def test_a_closed_file_is_let_go_by_the_rings_that_used_it(
    path: Path, queue: Queue, face: str
) -> None:
    """The disk space of a log that was deleted must not stay taken until the next read."""
    out = bytearray(2 * BLOCK_BYTES)
    with BlockFile(path, queue=queue) as file:
        lock(file)
        if face == "blocking":
            file.read_many([0, BLOCK_BYTES], out)
        else:
            file.submit("read_many", [0, BLOCK_BYTES], out).result(10)
        assert is_open(path)
    until(lambda: not is_open(path))


def test_a_closed_file_is_let_go_by_a_loop_that_goes_on(
    path: Path, tmp_path: Path, queue: Queue
) -> None:
    """The same for the ring of an event loop, which other files keep."""
    other = tmp_path / "other"
    other.write_bytes(bytes(BLOCK_BYTES))
    out = bytearray(2 * BLOCK_BYTES)

    async def main() -> None:
        async with asyncio.timeout(10), BlockFile(other, queue=queue):
            async with BlockFile(path, queue=queue) as file:
                lock(file.file)
                await file.read_many([0, BLOCK_BYTES], out)
                assert is_open(path)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, until, lambda: not is_open(path))

    asyncio.run(main())


@pytest.fixture
def tail(tmp_path: Path) -> Path:
    """Make a file whose last block is not full."""
    path = tmp_path / "tail"
    path.write_bytes(content().tobytes()[:10_000])
    return path


@pytest.mark.parametrize("direct", [False, True])
def test_the_end_of_a_file_is_told_the_same_way_cached_and_direct(
    tail: Path, queue: Queue, direct: bool
) -> None:
    """Half a block taken for a whole one is old memory taken for data."""
    rows = Arena("4MiB").empty((4, BLOCK_BYTES), np.uint8)
    offsets = [0, 8192, 12288, 1 << 40]
    with BlockFile(tail, direct=direct, queue=queue) as file:
        assert file.read_many(offsets, rows).tolist() == [4096, 1808, 0, 0]
        assert rows[1, :1808].tobytes() == content().tobytes()[8192:10_000]
        results = file.read_many(offsets, rows, exact=True, return_errors=True)
        assert results.tolist() == [4096, *[-errno.ENODATA] * 3]
        with pytest.raises(BlockError) as caught:
            file.read_many(offsets, rows, exact=True)
        assert (caught.value.index, caught.value.errno) == (1, errno.ENODATA)


@pytest.mark.parametrize(
    ("shift", "length", "offset", "words"),
    [
        (512, 512, 512, None),
        (4, 512, 0, "memory"),
        (1, 512, 0, "memory"),
        (0, 1000, 0, "length is 1000"),
        (0, 512, 100, "offset is 100"),
    ],
)
def test_direct_reads_out_of_line_are_named_before_anything_is_read(
    path: Path, queue: Queue, shift: int, length: int, offset: int, words: str | None
) -> None:
    """The kernel says EINVAL of one operation, and nothing of which number is wrong."""
    with BlockFile(path, direct=True, queue=queue) as file:
        memory, unit = file.alignment
        if (memory, unit) != (512, 512) and not (memory <= 4 and words == "memory"):
            pytest.skip(f"the numbers are those of 512-byte sectors; here {memory} and {unit}")
        buffer = Arena("4MiB").empty(64 << 10, np.uint8)
        listed = np.zeros(32, OPERATION)
        listed["length"] = 512
        listed["buffer_offset"] = np.arange(32) * 1024
        listed[7] = (offset, 7 * 1024 + shift, length, 0, READ, 0)
        if words is None:
            assert queue.run(listed, file, buffer).tolist() == [512] * 32
            return
        with pytest.raises(ConfigError, match=f"operation 7: .*{words}"):
            queue.run(listed, file, buffer)
        assert not buffer.any()


def test_a_sync_behind_a_write_that_fails_promises_nothing(queue: Queue) -> None:
    """A sync that succeeds says that the write before it is safe."""
    with BlockFile("/dev/full", mode="r+", queue=queue) as full:
        listed = [(0, 0, 512, 0, WRITE, 0), (0, 0, 0, 0, FSYNC, 0), (0, 0, 0, 0, FDATASYNC, 0)]
        results = queue.run(listed, full, bytes(512), return_errors=True)
    assert results.tolist() == [-errno.ENOSPC, -errno.ECANCELED, -errno.ECANCELED]


def test_writes_that_end_in_a_sync_never_stall(tmp_path: Path, queue: Queue) -> None:
    """The kernel's own ordering stalled for ever with 31 direct writes and one sync."""
    data = Arena("4MiB").empty((31, BLOCK_BYTES), np.uint8)
    data[:] = content()[:31]
    listed = np.zeros(32, OPERATION)
    listed["kind"] = [WRITE] * 31 + [FDATASYNC]
    listed["offset"] = np.arange(32) * BLOCK_BYTES
    listed["buffer_offset"] = listed["offset"] % (31 * BLOCK_BYTES)
    listed["length"] = [BLOCK_BYTES] * 31 + [0]
    listed[31]["offset"] = 0
    with BlockFile(tmp_path / "new", mode="w", direct=True, queue=queue) as file:
        for _ in range(10):
            assert queue.submit(listed, file, data).result(10).tolist()[:31] == [BLOCK_BYTES] * 31
            assert queue.run(listed, file, data).tolist()[31] == 0


def test_overlapping_writes_leave_bytes_of_one_of_them(tmp_path: Path, queue: Queue) -> None:
    """Which of them is seen last is open; anything else would be damage."""
    buffer = np.repeat(np.arange(1, 9, dtype=np.uint8), BLOCK_BYTES)
    listed = [(n * 1000, n * BLOCK_BYTES, BLOCK_BYTES, 0, WRITE, 0) for n in range(8)]
    with BlockFile(tmp_path / "new", mode="w", queue=queue) as file:
        assert queue.run(listed, file, buffer).tolist() == [BLOCK_BYTES] * 8
    written = np.fromfile(tmp_path / "new", np.uint8)
    for at, number in enumerate(written):
        covering = [n + 1 for n in range(8) if n * 1000 <= at < n * 1000 + BLOCK_BYTES]
        assert number in covering


def test_a_number_that_is_used_again_is_not_read_for_the_file_that_had_it(
    tmp_path: Path, pipe: Path, queue: Queue
) -> None:
    """A read that goes to the file which has got the number meanwhile is silently wrong."""
    out = bytearray(10)
    slow = BlockFile(pipe, mode="r+", queue=queue)
    number = slow.fileno()
    future = slow.submit("read", 0, out)
    slow.close()
    for index in range(100):  # more than a ring registers at once
        path = tmp_path / str(index)
        path.write_bytes(bytes([index]) * 10)
        with BlockFile(path, queue=queue) as file:
            assert file.fileno() != number, "the batch in flight has it"
            data = bytearray(10)
            assert file.read_many([0, 5], data).tolist() == [5, 5]
            assert file.submit("read", 0, data).result(10) == 10
            assert data == bytes([index]) * 10
    feed(pipe, b"water")
    assert future.result(10) == 5
    assert out[:5] == b"water"


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_a_tiny_ring_loses_no_completion(path: Path, engine: str, limit: int) -> None:
    """A ring whose room for completions runs over makes its callers wait for ever."""
    blocks = np.random.default_rng(3).integers(0, BLOCKS, 3000)
    rows = np.zeros((3000, 64), np.uint8)

    async def read(queue: Queue) -> None:
        async with BlockFile(path, queue=queue) as file:
            await file.read_many(blocks * BLOCK_BYTES, rows)

    with (
        Queue(engine=engine, max_batch=limit, max_concurrency=limit) as queue,
        BlockFile(path, queue=queue) as file,
    ):
        reads = (
            lambda: file.read_many(blocks * BLOCK_BYTES, rows),
            lambda: file.submit("read_many", blocks * BLOCK_BYTES, rows).result(30),
            lambda: asyncio.run(read(queue)),
        )
        for act in reads:
            rows[:] = 0
            act()
            assert (rows == content()[blocks, :64]).all()


def test_one_system_call_carries_many_operations(path: Path) -> None:
    """A system call for each operation is what batches are there to save."""
    with (
        Queue(engine="ring", max_batch=64, max_concurrency=128) as queue,
        BlockFile(path, queue=queue) as file,
    ):
        offsets = np.tile(shuffled(), 10)
        file.read_many(offsets, np.zeros((len(offsets), BLOCK_BYTES), np.uint8))
        stats = queue.stats()
    assert stats["operations"] == len(offsets)
    assert stats["enters"] <= 0.03 * stats["operations"]


def test_another_thread_is_refused_before_a_ring_is_touched(path: Path) -> None:
    """What another thread leaves in a ring goes out later, into memory of nobody knows whom."""
    out = bytearray(20)
    listed = [(0, 0, 10, 0, READ, 0), (BLOCK_BYTES, 10, 10, 0, READ, 0)]
    with Queue(engine="ring") as queue, BlockFile(path, queue=queue) as file:
        port = queue.port(False)
        refused: list[BaseException] = []

        def use() -> None:
            for act in (
                lambda: queue.start(port, 1, listed, file, out),
                port.turn,
            ):
                try:
                    act()
                except BusyError as error:
                    refused.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        assert len(refused) == 2
        assert port.turn() == []
        assert queue.stats()["operations"] == 0
        assert out == bytes(20)
        out.extend(b"more")
        batch = queue.start(port, 2, listed, file, out)
        assert batch.done
        assert out[:20] == content()[:2, :10].tobytes()
        port.close()


def _forks(path: str, engine: str) -> None:
    rows = np.zeros((BLOCKS, BLOCK_BYTES), np.uint8)
    expected = content()[shuffled() // BLOCK_BYTES]
    with Queue(engine=engine) as queue, BlockFile(path, direct=False, queue=queue) as file:
        file.read_many([0], rows[:1])

        def child() -> None:
            own = np.zeros((8, BLOCK_BYTES), np.uint8)
            file.read_many(shuffled(8), own)
            assert (own == expected[:8]).all()
            queue.close()

        for _ in range(20):
            rows[:] = 0
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            future = file.submit("read_many", shuffled(), rows)
            assert in_child(child) == 0
            assert future.result(10).tolist() == [BLOCK_BYTES] * BLOCKS
            assert (rows == expected).all()


@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_a_fork_in_mid_read_disturbs_neither_side(path: Path, engine: str) -> None:
    """A child that shares its parent's ring takes its completions, and the parent hangs."""
    alone(_forks, path, engine)


def _reads_until_interrupted(pipe: str, path: str, engine: str) -> None:
    out = bytearray(BLOCK_BYTES)
    with Queue(engine=engine) as queue:
        slow, file = BlockFile(pipe, mode="r+", queue=queue), BlockFile(path, queue=queue)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 -- it may come as soon as that is told
            os.write(1, b"!")
            slow.read(0, bytearray(10))
        assert file.read(0, out) == BLOCK_BYTES
        assert out == content()[0].tobytes()
        feed(Path(pipe), b"water")  # one that is in a system call of a thread ends with that


@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_an_interrupt_from_the_keyboard_ends_a_read_and_not_the_queue(
    pipe: Path, path: Path, engine: str
) -> None:
    """Ctrl-C must work, and what follows it as well."""
    arguments = [*command(_reads_until_interrupted), str(pipe), str(path), engine]
    with subprocess.Popen(
        [sys.executable, "-c", CALL, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.read(1) == b"!"
        time.sleep(PAUSES_S[2])  # most often it sleeps in the kernel by then
        reader.send_signal(signal.SIGINT)
        wrong = reader.stderr.read().decode()
    assert reader.returncode == 0, wrong


def ring_mappings() -> int:
    """How many pieces of this process's memory are shared with a ring."""
    return Path("/proc/self/maps").read_text().count("[io_uring]")


def _come_and_go(path: str) -> None:
    async def read(queue: Queue) -> None:
        async with BlockFile(path, queue=queue) as file:
            await file.read_many([0], bytearray(10))

    before = ring_mappings()
    arena = Arena("4MiB")
    for _ in range(5):
        with Queue(engine="ring", arena=arena) as queue, BlockFile(path, queue=queue) as file:
            rows = arena.empty((2, 10), np.uint8)
            file.read_many([0, 1], rows)
            assert ring_mappings() > before
            reading = threading.Thread(target=lambda file=file: file.read_many([0], bytearray(10)))
            reading.start()
            reading.join()
            file.submit("read", 0, bytearray(10)).result(10)
            asyncio.run(read(queue))
        del queue, file, rows, reading
    arena.close()
    assert ring_mappings() == before


def test_rings_leave_no_mapping(path: Path) -> None:
    """A service that makes a queue for each job would run out of memory, or of mappings."""
    alone(_come_and_go, path)
