"""Memory that the kernel may still write: never given to anybody else, and let go in the end."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import random
import threading
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio import BlockFile, Queue
from forebay.errors import BlockError, ClosedError, LimitError
from forebay.memory import Arena
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, Blocks, content, shuffled
from tests.blockio.pipes import feed, until

UNTOUCHED = 0xAA
LOOK_AGAIN_S = 0.02
"""How long the kernel gets to write what it must not."""


def drop_cache(path: Path) -> None:
    """Have buffered reads wait for the disk again."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def pass_through(file: BlockFile) -> None:
    """Have what was handed over before be under way, because this was handed over later."""
    file.submit("read_many", [0, BLOCK_BYTES], bytearray(20)).result(10)


def check_blocks(rows: Blocks, results: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Each block that was read is right; one that was cancelled is whole or was not begun."""
    for row, block, result in zip(rows, content()[shuffled() // BLOCK_BYTES], results, strict=True):
        if result == BLOCK_BYTES:
            assert (row == block).all()
        else:
            assert result == -errno.ECANCELED
            assert (row == UNTOUCHED).all()


@pytest.mark.parametrize("engine", ["ring", "threads"])
@pytest.mark.parametrize("direct", [True, False])
def test_nothing_is_written_once_a_close_has_returned(
    path: Path, engine: str, direct: bool
) -> None:
    """After the kernel's own close of a ring, half of all buffers were written later."""
    arena = Arena("64MiB")
    rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
    for _ in range(20):
        drop_cache(path)
        rows[:] = UNTOUCHED
        results = np.full(BLOCKS, 7)
        with Queue(engine=engine) as queue, BlockFile(path, direct=direct, queue=queue) as file:
            future = file.submit("read_many", shuffled(), rows, return_errors=True, results=results)
            assert queue.close() == 0
            after = rows.copy()
            time.sleep(LOOK_AGAIN_S)  # not a wait: it looks at what must not happen
            assert (rows == after).all()
            assert isinstance(future.exception(10), (ClosedError, type(None)))
            check_blocks(rows, results)


@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_nothing_is_written_once_a_loop_has_been_left(path: Path, engine: str) -> None:
    """A loop that ends with cancelled reads takes its ring along, and the kernel must be done."""
    arena = Arena("64MiB")
    rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)

    async def main(queue: Queue) -> None:
        async with BlockFile(path, direct=True, queue=queue) as file:
            reading = asyncio.ensure_future(file.read_many(shuffled(), rows))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])

    for _ in range(20):
        rows[:] = UNTOUCHED
        with Queue(engine=engine) as queue:
            asyncio.run(main(queue))
        after = rows.copy()
        time.sleep(LOOK_AGAIN_S)  # not a wait: it looks at what must not happen
        assert (rows == after).all()


def test_reads_of_a_thread_that_ends_are_right(path: Path, queue: Queue) -> None:
    """A submitting thread that exits took 6,389 of 6,400 buffered reads along."""
    rows = np.zeros((BLOCKS, BLOCK_BYTES), np.uint8)
    with BlockFile(path, queue=queue) as file:
        for _ in range(10):
            drop_cache(path)
            rows[:] = 0
            futures: list[Future[Blocks]] = []

            def submit(futures: list[Future[Blocks]] = futures) -> None:
                futures.append(file.submit("read_many", shuffled(), rows))

            thread = threading.Thread(target=submit)
            thread.start()
            thread.join()
            assert futures.pop().result(10).tolist() == [BLOCK_BYTES] * BLOCKS
            assert (rows == content()[shuffled() // BLOCK_BYTES]).all()


def test_a_thread_that_ends_with_cancelled_reads_leaves_nothing_behind(
    path: Path, queue: Queue
) -> None:
    """A thread with a loop of its own ends in mid-read; its memory must come back untouched."""
    arena = Arena("64MiB")

    async def main(file: BlockFile) -> None:
        async with file as reader:
            rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
            reading = asyncio.ensure_future(reader.read_many(shuffled(), rows))
            await asyncio.sleep(0)
            reading.cancel()

    for _ in range(10):
        drop_cache(path)
        file = BlockFile(path, queue=queue)
        thread = threading.Thread(target=lambda file=file: asyncio.run(main(file)))
        thread.start()
        thread.join()
        gc.collect()
        until(lambda: queue.stats()["quarantined_batches"] == 0)
        until(lambda: arena.stats()["blocks"] == 0)
    assert queue.stats()["leaked_operations"] == 0


@pytest.mark.parametrize("direct", [True, False])
def test_a_read_cancelled_at_any_moment_writes_to_its_own_memory_alone(
    path: Path, queue: Queue, direct: bool
) -> None:
    """A disk read cannot be taken back: what it writes must go where nobody else is."""
    chance = random.Random(11)
    arena = Arena("4MiB")
    with BlockFile(path, direct=direct, queue=queue) as file:
        for _ in range(100):
            drop_cache(path)
            rows = arena.empty((32, BLOCK_BYTES), np.uint8)
            future = file.submit("read_many", shuffled(32), rows)
            deadline = time.perf_counter() + chance.uniform(0.0, 0.0005)
            while time.perf_counter() < deadline and not future.done():
                pass
            future.cancel()
            del future, rows
            others: list[Blocks] = []
            with pytest.raises(LimitError):  # noqa: PT012 -- which of them is refused is open
                while True:
                    others.append(arena.empty((32, BLOCK_BYTES), np.uint8))
                    others[-1][:] = UNTOUCHED
            until(lambda: queue.stats()["quarantined_batches"] == 0)
            assert all((other == UNTOUCHED).all() for other in others)
            del others
            until(lambda: arena.stats()["blocks"] == 0)


def test_memory_that_the_caller_drops_is_kept_while_the_kernel_may_write_it(
    pipe: Path, path: Path, queue: Queue
) -> None:
    """Another library overwrote a live bytearray that had got the memory of a dropped one."""
    for size in (100, 5000, 1 << 20):
        # One each: a read that was canceled before the kernel had it leaves its bytes there.
        own = pipe.with_name(f"pipe of {size}")
        os.mkfifo(own)
        with BlockFile(own, mode="r+", queue=queue) as slow, BlockFile(path, queue=queue) as file:
            out = bytearray(size)
            future = slow.submit("read", 0, out)
            pass_through(file)
            assert future.cancel()
            del out, future
            gc.collect()
            others = [bytearray(b"\xaa") * size for _ in range(50)]
            feed(own, b"water")
            until(lambda: queue.stats()["quarantined_batches"] == 0)
            assert sum(other != b"\xaa" * size for other in others) == 0


def test_too_much_memory_in_quarantine_stops_new_batches_until_it_is_let_go(
    pipe: Path, path: Path
) -> None:
    """A device that hangs must not take all memory, one cancelled read after another."""
    for engine in ("ring", "threads"):
        with (
            Queue(engine=engine, max_quarantine_bytes=10_000) as queue,
            BlockFile(pipe, mode="r+", queue=queue) as slow,
            BlockFile(path, queue=queue) as file,
        ):
            futures = [slow.submit("read", 0, bytearray(BLOCK_BYTES)) for _ in range(3)]
            pass_through(file)
            assert all(future.cancel() for future in futures)
            until(lambda: queue.stats()["quarantined_bytes"] == 3 * BLOCK_BYTES)
            out = bytearray(20)
            for refused in (file.read_many, partial(file.submit, "read_many")):
                with pytest.raises(LimitError, match="max_quarantine_bytes") as caught:
                    refused([0, BLOCK_BYTES], out)
                assert (caught.value.value, caught.value.limit) == (3 * BLOCK_BYTES, 10_000)
            for left in (2, 1, 0):
                feed(pipe, b"water")
                until(lambda: queue.stats()["quarantined_batches"] == left)  # noqa: B023
            assert file.read_many([0, BLOCK_BYTES], out).tolist() == [10, 10]
            assert out == content()[:2, :10].tobytes()


def test_a_queue_dropped_in_mid_read_lets_go_of_everything(path: Path) -> None:
    """A program that forgets to close must not lose memory or crash."""
    arena = Arena("64MiB")
    for engine in ("ring", "threads"):
        for _ in range(5):
            drop_cache(path)
            rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
            file = BlockFile(path, queue=Queue(engine=engine))
            future = file.submit("read_many", shuffled(), rows)
            future.cancel()
            del rows, file, future
            gc.collect()
            until(lambda: arena.stats()["blocks"] == 0)


def test_a_close_tells_who_waits(pipe: Path, queue: Queue) -> None:
    """A future of a read that never ends is over when its queue is."""
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        future = file.submit("read", 0, bytearray(10))
        if queue.engine == "threads":
            feed(pipe, b"water")  # nobody can end a thread that is in a system call
        queue.close()
        error = future.exception(10)
        assert error is None or isinstance(error, (BlockError, ClosedError))
