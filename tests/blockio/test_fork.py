"""Queues and files in a forked child: rings, threads and locks of its own."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.blockio import BlockFile, Queue, default_queue, set_default_queue
from forebay.errors import StaleError
from tests.blockio.blocks import BLOCK_BYTES, Blocks, content
from tests.blockio.pipes import feed


def in_child(act: Callable[[], None]) -> int:
    """Do something in a forked child; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_reads_on_every_face(path: Path, queue: Queue, out: Blocks) -> None:
    """A worker forked from a template uses the files that the template opened."""
    with BlockFile(path, queue=queue) as file:
        file.read_many([0], out[:1])
        file.submit("read_many", [0], out[:1]).result(10)

        async def read() -> None:
            async with BlockFile(path, queue=queue) as other:
                await other.read_many([4096], out[1:2])

        def child() -> None:
            out[:] = 0
            file.read_many([0], out[:1])
            assert (out[0] == content()[0]).all()
            asyncio.run(read())
            assert (out[1] == content()[1]).all()
            file.submit("read_many", [8192], out[2:3]).result(10)
            assert (out[2] == content()[2]).all()

        asyncio.run(read())
        assert in_child(child) == 0
        out[:] = 0
        file.read_many([0], out[:1])
        file.submit("read_many", [4096], out[1:2]).result(10)
        assert (out[:2] == content()[:2]).all()


def test_a_fork_inside_of_a_loop_leaves_the_parents_reads_alone(
    pipe: Path, path: Path, queue: Queue
) -> None:
    """The child's first act must not take the parent's completions."""

    async def main() -> None:
        async with BlockFile(pipe, mode="r+", queue=queue) as file:
            out = bytearray(10)
            reading = asyncio.ensure_future(file.read(0, out))
            await asyncio.sleep(0.01)

            def child() -> None:
                with BlockFile(path, queue=queue) as other:
                    assert other.read(0, bytearray(BLOCK_BYTES)) == BLOCK_BYTES

            assert in_child(child) == 0
            feed(pipe, b"water")
            assert await reading == 5

    asyncio.run(main())


def test_a_child_that_lets_go_of_its_parents_queues_keeps_its_own_memory(path: Path) -> None:
    """A worker that cleans up after its fork unmapped its own ring, and died with SIGSEGV."""
    parents = [Queue(engine="ring") for _ in range(4)]
    with Queue(engine="ring") as last:

        def child() -> None:
            with Queue(engine="ring") as queue, BlockFile(path, queue=queue) as file:
                out = bytearray(2 * BLOCK_BYTES)
                file.read_many([0, BLOCK_BYTES], out)
                parents.clear()
                gc.collect()
                last.close()
                file.read_many([BLOCK_BYTES, 0], out)
                assert out == content()[[1, 0]].tobytes()

        assert in_child(child) == 0
    for queue in parents:
        queue.close()


@pytest.mark.parametrize("hand_over", [False, True], ids=["ring", "I/O thread"])
def test_a_child_is_told_that_a_port_is_its_parents(
    path: Path, queue: Queue, *, hand_over: bool
) -> None:
    """Its turns would take the parent's wake-ups; the error says who is to make another one."""
    out = bytearray(BLOCK_BYTES)
    with BlockFile(path, queue=queue) as file:
        port = queue.port(hand_over)

        def child() -> None:
            for use in (port.turn, lambda: file.start(port, 1, "read", 0, out)):
                with pytest.raises(StaleError, match=f"belongs to process {os.getppid()}"):
                    use()
            assert port.drain(0.0) == (0, [])

        assert in_child(child) == 0
        batch = file.start(port, 1, "read", 0, out)
        while not batch.done and port.turn() != [1]:
            time.sleep(0.001)
        assert batch.result() == BLOCK_BYTES
        port.close()


def test_the_default_queue_works_in_a_child(path: Path, out: Blocks) -> None:
    """Who never heard of queues forks too."""
    set_default_queue(None)
    with default_queue() as queue, BlockFile(path) as file:
        assert file.queue is queue
        file.read_many([0], out[:1])
        assert in_child(lambda: _read(file)) == 0
    assert default_queue() is not queue
    with Queue() as other:
        set_default_queue(other)
        assert default_queue() is other
    set_default_queue(None)


def _read(file: BlockFile) -> None:
    assert file.read(0, bytearray(BLOCK_BYTES)) == BLOCK_BYTES


def test_a_child_that_drops_a_queue_lets_the_thread_of_its_parent_sleep(
    path: Path, out: Blocks
) -> None:
    """It would be woken for ever, by a descriptor that both have and nobody reads."""
    held = [Queue()]
    with BlockFile(path, queue=held[0]) as file:
        file.submit("read_many", [0], out[:1]).result(10)
    del file

    def child() -> None:
        held.clear()
        gc.collect()

    assert in_child(child) == 0
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1
    held.pop().close()
