"""Futures of submitted batches: results, cancelling, ends, and the thread that completes them."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio import READ, BlockFile, Queue
from forebay.errors import BlockError, ClosedError, ConfigError
from forebay.memory import Arena
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, Blocks, content, shuffled
from tests.blockio.pipes import PAUSES_S, feed, until


def serving() -> list[threading.Thread]:
    """Threads that complete futures."""
    return [one for one in threading.enumerate() if one.name == "forebay-block-futures"]


def test_a_future_has_what_the_method_returns(file: BlockFile, queue: Queue, out: Blocks) -> None:
    """Compute goes on while blocks are read."""
    offsets = shuffled()
    future = file.submit("read_many", offsets, out)
    assert future.result(10).tolist() == [BLOCK_BYTES] * BLOCKS
    assert (out == content()[offsets // BLOCK_BYTES]).all()
    assert file.submit("write", 0, b"abc").result(10) == 3
    assert file.submit("fsync").result(10) == 0
    assert file.submit("read", 0, out[0]).result(10) == BLOCK_BYTES
    assert out[0, :3].tobytes() == b"abc"
    assert queue.submit([(0, 0, 3, 0, READ, 0)], file, out[1]).result(10).tolist() == [3]


def test_many_threads_share_one_completing_thread(file: BlockFile) -> None:
    """A thread per future would cost more than the read."""

    def read(first: int) -> None:
        rows = np.zeros((10, BLOCK_BYTES), np.uint8)
        for begin in range(first, first + 100, 10):
            offsets = np.arange(begin, begin + 10, dtype=np.uint64) * np.uint64(BLOCK_BYTES)
            file.submit("read_many", offsets, rows).result(10)
            assert (rows == content()[begin : begin + 10]).all()

    threads = [threading.Thread(target=read, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(serving()) == 1


def test_errors_come_with_the_future_and_wrong_arguments_at_once(
    tmp_path: Path, file: BlockFile, queue: Queue, out: Blocks
) -> None:
    """What is wrong with the call is told where the call stands."""
    with BlockFile(tmp_path, queue=queue) as directory:
        future = directory.submit("read_many", [0], out[:1])
        with pytest.raises(BlockError) as caught:
            future.result(10)
        assert caught.value.errno == errno.EISDIR
    with pytest.raises(ConfigError, match="multiple"):
        file.submit("read_many", [0, 1, 2], bytearray(100))
    with pytest.raises(ConfigError, match="unknown method"):
        file.submit("unlink", [0], out)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        file.submit("read_many", [0])


def test_a_buffer_cannot_be_resized_while_the_kernel_may_write_it(pipe: Path, queue: Queue) -> None:
    """The kernel would write into memory that belongs to something else by then."""
    out = bytearray(10)
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        future = file.submit("read", 0, out)
        with pytest.raises(BufferError):
            out.extend(b"more")
        feed(pipe, b"water")
        assert future.result(10) == 5
    assert out[:5] == b"water"
    out.extend(b"more")


def test_a_cancelled_read_keeps_its_memory_until_the_kernel_lets_go(
    pipe: Path, queue: Queue
) -> None:
    """Memory that is used again while a read is under way is a silent corruption."""
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        future, out = _cancel_in_flight(file, queue)
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result()
        with pytest.raises(BufferError):
            out.extend(b"more")
        feed(pipe, b"water")
        until(lambda: queue.stats()["quarantined_bytes"] == 0)
        gc.collect()
        until(lambda: _resizable(out))


def _cancel_in_flight(file: BlockFile, queue: Queue) -> tuple[Future[Any], bytearray]:
    for pause in PAUSES_S:
        out = bytearray(10)
        future = file.submit("read", 0, out)
        time.sleep(pause)
        assert future.cancel()
        time.sleep(pause)
        if queue.stats()["quarantined_batches"] == 1:
            return future, out
    raise AssertionError("no read came to be in flight")


def _resizable(out: bytearray) -> bool:
    try:
        out.append(0)
    except BufferError:
        return False
    return True


def test_a_done_future_cannot_be_cancelled(file: BlockFile, out: Blocks) -> None:
    """As with every executor."""
    future = file.submit("read_many", [0], out[:1])
    future.result(10)
    assert not future.cancel()


def test_close_ends_what_waits_and_the_thread(pipe: Path, path: Path, out: Blocks) -> None:
    """A service that is shut down must not hang in a future."""
    queue = Queue()
    with BlockFile(pipe, mode="r+", queue=queue) as slow, BlockFile(path, queue=queue) as file:
        waiting = slow.submit("read", 0, bytearray(10))
        done = file.submit("read_many", [0], out[:1])
        assert done.result(10).tolist() == [BLOCK_BYTES]
        assert queue.close() == 0
        assert wait([waiting], 10).not_done == set()
        assert isinstance(waiting.exception(), (BlockError, ClosedError))
        assert serving() == []
        with pytest.raises(ClosedError):
            file.submit("read_many", [0], out[:1])


def leave(_: Future[Any]) -> None:
    """End the thread that runs it."""
    sys.exit(3)


KEPT = "pytest keeps the log's tracebacks, whose frames hold the queue"


@pytest.mark.leaks(reason=KEPT)
def test_a_callback_that_exits_ends_no_other_future(
    pipe: Path, tmp_path: Path, path: Path, queue: Queue, out: Blocks
) -> None:
    """SystemExit of one callback must not end the futures of a queue for good."""
    other = tmp_path / "other"
    os.mkfifo(other)
    with (
        BlockFile(pipe, mode="r+", queue=queue) as first,
        BlockFile(other, mode="r+", queue=queue) as last,
        BlockFile(path, queue=queue) as file,
    ):
        waiting = last.submit("read", 0, bytearray(10))
        exiting = first.submit("read", 0, bytearray(10))
        exiting.add_done_callback(leave)
        feed(pipe, b"water")
        assert exiting.result(10) == 5
        for _ in range(20):
            future = file.submit("read_many", [0], out[:1])
            with contextlib.suppress(SystemExit):  # it is done already, and ends its caller
                future.add_done_callback(leave)
            assert future.result(10).tolist() == [BLOCK_BYTES]
        assert not waiting.done()
        feed(other, b"more")
        assert waiting.result(10) == 4
        assert len(serving()) == 1
        assert not queue.closed


@pytest.mark.leaks(reason=KEPT)
def test_a_callback_that_exits_does_not_keep_a_close_from_the_others(
    pipe: Path, queue: Queue
) -> None:
    """All that a close ends are told, whatever the first of them does."""
    with BlockFile(pipe, mode="r+", queue=queue) as slow:
        waiting = [slow.submit("read", 0, bytearray(10)) for _ in range(3)]
        for future in waiting:
            future.add_done_callback(leave)
        queue.close()
        assert wait(waiting, 10).not_done == set()
        assert serving() == []


def test_a_queue_that_nobody_has_any_more_ends_its_thread(path: Path, out: Blocks) -> None:
    """A program that forgets to close must not gather threads."""
    future = BlockFile(path, queue=Queue()).submit("read_many", [0], out[:1])
    assert future.result(10).tolist() == [BLOCK_BYTES]
    del future
    gc.collect()
    until(lambda: not serving())


PENDING = """
import sys
from forebay.blockio import BlockFile
file = BlockFile(sys.argv[1], mode="r+")
future = file.submit("read", 0, bytearray(10))
print("pending", flush=True)
"""


def test_a_pending_future_does_not_keep_the_process(pipe: Path) -> None:
    """A script ends where its last line stands."""
    command = [sys.executable, "-c", PENDING, str(pipe)]
    done = subprocess.run(command, check=False, timeout=30, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pending\n", "")


def test_an_arena_counts_the_memory_of_a_cancelled_read(pipe: Path, queue: Queue) -> None:
    """Who looks for lost memory sees where it is."""
    arena = Arena("64MiB")
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        for pause in PAUSES_S:
            rows = arena.empty(4096, np.uint8)
            future = file.submit("read", 0, rows[:100])
            del rows
            time.sleep(pause)
            assert future.cancel()
            time.sleep(pause)
            if arena.stats()["quarantined_blocks"] == 1:
                break
        assert arena.stats()["quarantined_bytes"] == 4096
        feed(pipe, b"water")
        until(lambda: arena.stats()["blocks"] == 0)
        assert arena.stats()["quarantined_blocks"] == 0
