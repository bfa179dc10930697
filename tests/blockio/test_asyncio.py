"""The asyncio face on every event loop: at once, waiting, cancelled, closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio import READ, AsyncBlockFile, BlockFile, Queue
from forebay.errors import BlockError, ClosedError, ConfigError
from forebay.memory import Arena
from tests.blockio import pipes
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, Blocks, content, shuffled
from tests.blockio.pipes import PAUSES_S, feed
from tests.loops import TIMEOUT_S, Run, run

__all__ = ["run"]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that the kernel does; the loop goes on meanwhile."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, pipes.until, condition)


def test_blocks_are_read_and_written(run: Run, path: Path, queue: Queue, out: Blocks) -> None:
    """The asyncio face is the blocking one, awaited."""

    async def main() -> None:
        async with BlockFile(path, mode="r+", queue=queue) as file:
            assert isinstance(file, AsyncBlockFile)
            read = await file.read_many(shuffled(), out)
            assert read.tolist() == [BLOCK_BYTES] * BLOCKS
            assert (out == content()[shuffled() // BLOCK_BYTES]).all()
            with pytest.raises(ConfigError, match="multiple of 2"):
                await file.write_many([0, 8], b"somewater")
            assert (await file.write_many([0, 5], b"some water")).tolist() == [5, 5]
            await file.fsync()
            await file.fdatasync()
            assert await file.write(10, b"!") == 1
            assert await file.read(0, out[0], exact=True) == BLOCK_BYTES
            assert out[0, :11].tobytes() == b"some water!"
            assert (file.size_bytes, file.path) == (BLOCKS * BLOCK_BYTES, path)
        assert file.closed

    run(main())


def test_what_the_page_cache_has_is_read_without_a_switch_of_tasks(
    run: Run, path: Path, out: Blocks
) -> None:
    """A cached read takes a microsecond; a turn of the loop takes ten."""
    order: list[str] = []

    async def main() -> None:
        async with Queue(engine="ring") as queue, BlockFile(path, queue=queue) as file:
            asyncio.get_running_loop().call_soon(order.append, "the loop's turn")
            await file.read_many([0, 4096], out[:2])
            order.append("the read")
            await asyncio.sleep(0)

    run(main())
    assert order == ["the read", "the loop's turn"]


def test_a_read_that_waits_lets_other_tasks_run(run: Run, pipe: Path, queue: Queue) -> None:
    """A slow disk must not stop a server."""

    async def main() -> None:
        async with BlockFile(pipe, mode="r+", queue=queue) as file:
            out = bytearray(10)
            reading = asyncio.ensure_future(file.read(0, out))
            await asyncio.sleep(0.01)
            assert not reading.done()
            feed(pipe, b"water")
            assert await reading == 5
            assert out[:5] == b"water"

    run(main())


def test_many_tasks_read_at_once(run: Run, path: Path, queue: Queue) -> None:
    """Batches of different tasks are in flight together, and none gets another's blocks."""

    async def reader(file: AsyncBlockFile, number: int) -> None:
        rows = np.zeros((5, BLOCK_BYTES), np.uint8)
        generator = np.random.default_rng(number)
        for _ in range(10):
            blocks = generator.integers(0, BLOCKS, 5)
            await file.read_many(blocks * BLOCK_BYTES, rows)
            assert (rows == content()[blocks]).all()

    async def main() -> None:
        async with (
            BlockFile(path, queue=queue) as file,
            BlockFile(path, direct=False, queue=queue) as other,
            asyncio.TaskGroup() as group,
        ):
            for number in range(20):
                group.create_task(reader(file if number % 2 else other, number))

    run(main())


def test_a_queue_runs_mixed_batches(run: Run, path: Path, out: Blocks) -> None:
    """The list of operations is the same on every face."""

    async def main() -> None:
        async with Queue() as queue:
            async with BlockFile(path, queue=queue) as file:
                listed = [(4096, 0, 10, 0, READ, 0)]
                assert (await queue.run(listed, file.file, out[0])).tolist() == [10]
            assert queue.engine in ("ring", "threads")
            assert queue.reason
        with pytest.raises(ClosedError):
            await queue.run(listed, file.file, out[0])

    run(main())


def test_errors_name_the_operation(run: Run, tmp_path: Path, queue: Queue) -> None:
    """As on the blocking face."""

    async def main() -> None:
        async with BlockFile(tmp_path, queue=queue) as directory:
            with pytest.raises(BlockError, match="Is a directory") as caught:
                await directory.read_many([0, 1], bytearray(2))
            assert (caught.value.index, caught.value.errno) == (0, errno.EISDIR)
            results = await directory.read_many([0, 1], bytearray(2), return_errors=True)
            assert results.tolist() == [-errno.EISDIR] * 2

    run(main())


def test_a_cancelled_task_ends_at_once_and_its_memory_is_kept(
    run: Run, pipe: Path, queue: Queue
) -> None:
    """The kernel writes later, into memory that must not be somebody else's by then."""
    arena = Arena("64MiB")

    async def main() -> None:
        async with BlockFile(pipe, mode="r+", queue=queue) as file:
            rows = arena.empty(4096, np.uint8)
            for pause in PAUSES_S:
                reading = asyncio.ensure_future(file.read(0, rows))
                await asyncio.sleep(pause)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                if queue.stats()["quarantined_batches"] == 1:
                    break
            del rows, reading
            assert queue.stats()["quarantined_batches"] == 1
            assert arena.stats()["blocks"] == 1
            feed(pipe, b"water")
            await until(lambda: arena.stats()["blocks"] == 0)
            assert queue.stats()["quarantined_batches"] == 0

    run(main())


def test_leaving_cancels_what_waits_for_ever(
    run: Run, pipe: Path, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown ends although nobody writes to the pipe."""
    monkeypatch.setattr("forebay.blockio.files.loop_port.LEAVE_S", 0.05)

    async def main() -> None:
        async with BlockFile(pipe, mode="r+", queue=queue) as file:
            reading = asyncio.ensure_future(file.read(0, bytearray(10)))
            await asyncio.sleep(0.01)
        with pytest.raises((BlockError, ClosedError)):
            await reading
        await file.aclose()
        with contextlib.suppress(OSError):  # where a thread of ours still reads: nobody can stop it
            feed(pipe, b"water")

    run(main())


def test_an_io_thread_can_do_the_loops_reads(run: Run, path: Path, out: Blocks) -> None:
    """A loop that is busy with other work hands its reads over."""

    async def main() -> None:
        async with Queue(io_thread=True) as queue, BlockFile(path, queue=queue) as file:
            assert (await file.read_many(shuffled(), out)).tolist() == [BLOCK_BYTES] * BLOCKS
            assert (out == content()[shuffled() // BLOCK_BYTES]).all()

    run(main())


def test_several_loops_after_each_other_use_one_file(path: Path, out: Blocks) -> None:
    """`asyncio.run` twice is ordinary code; the second must not get the first one's ring."""
    with Queue() as queue:

        async def main() -> None:
            async with BlockFile(path, queue=queue) as file:
                await file.read_many([0], out[:1])

        asyncio.run(main())
        asyncio.run(main())
    assert (out[0] == content()[0]).all()


@pytest.mark.parametrize("kind", ["file", "queue"])
def test_two_loops_leave_each_its_own_port(path: Path, queue: Queue, kind: str) -> None:
    """Who leaves a file that two threads use, each with a loop, must not take the other's ring."""
    entered, left = threading.Barrier(2), threading.Event()

    async def use(number: int, shared: BlockFile | Queue) -> None:
        if number == 1:
            await asyncio.to_thread(entered.wait, TIMEOUT_S)
        async with shared:
            if number == 0:
                await asyncio.to_thread(entered.wait, TIMEOUT_S)
                await until(lambda: len(queue._loops) == 2)
            else:
                assert await asyncio.to_thread(left.wait, TIMEOUT_S)
        left.set()
        assert asyncio.get_running_loop() not in queue._loops

    with BlockFile(path, queue=queue) as file, ThreadPoolExecutor(2) as threads:
        shared = file if kind == "file" else queue
        runs = [threads.submit(lambda n=n: asyncio.run(use(n, shared))) for n in range(2)]
        for done in runs:
            done.result(TIMEOUT_S)
    assert queue._loops == {}
