"""Signals during a blocking call: handlers run, and one that raises ends the wait safely."""

from __future__ import annotations

import errno
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from forebay.blockio import FSYNC, WRITE, BlockFile, Queue
from forebay.errors import LimitError
from tests.blockio.alone import alone
from tests.blockio.pipes import PAUSES_S, feed, until
from tests.blockio.test_hazards_files import ring_mappings


@contextmanager
def after(seconds: float, handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have a signal handler run in a moment."""
    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        yield
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_runs_and_the_read_goes_on(pipe: Path, queue: Queue) -> None:
    """A timer of the program must not fail its reads."""
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        out = bytearray(10)
        with after(0.05, lambda *_: feed(pipe, b"water")):
            assert file.read(0, out) == 5
    assert out[:5] == b"water"


def interrupt_in_flight(file: BlockFile) -> bytearray:
    """Give a read of a pipe up that the kernel has; return its memory, ten bytes."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for pause in PAUSES_S:
        out = bytearray(10)
        # The signal may come before the read on a busy machine.
        with pytest.raises(KeyboardInterrupt), after(pause, interrupt):
            file.read(0, out)
        if file.queue.stats()["quarantined_batches"] == 1:
            break
    assert file.queue.stats()["quarantined_batches"] == 1
    return out


def test_ctrl_c_ends_a_read_and_its_memory_is_kept(pipe: Path, path: Path, queue: Queue) -> None:
    """Ctrl-C must work, and the kernel must not write into memory that was freed."""
    with BlockFile(pipe, mode="r+", queue=queue) as file, BlockFile(path, queue=queue) as other:
        out = interrupt_in_flight(file)
        with pytest.raises(BufferError):
            out.extend(b"more")
        assert other.read(0, bytearray(4096)) == 4096
        feed(pipe, b"water")
        until(lambda: other.read(0, bytearray(4096)) and not queue.stats()["quarantined_batches"])
        gc.collect()
        until(lambda: may_grow(out))  # a thread of the fallback lets go of it a moment later


def may_grow(out: bytearray) -> bool:
    """Whether nobody has a view of it."""
    try:
        out.extend(b"more")
    except BufferError:
        return False
    return True


def test_a_signal_to_another_thread_is_no_business_of_the_reader(pipe: Path, queue: Queue) -> None:
    """Handlers run in the main thread; a reader that is woken waits on."""
    out = bytearray(10)
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(file.read(0, out)))
        thread.start()
        assert thread.ident is not None
        before = signal.signal(signal.SIGUSR1, lambda *_: None)
        for _ in range(20):
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
        feed(pipe, b"water")
        thread.join(10)
        signal.signal(signal.SIGUSR1, before)
    assert results == [5]


def test_a_signal_that_does_not_wake_the_main_thread_is_seen_within_a_second(
    pipe: Path, queue: Queue
) -> None:
    """As one that comes between its last look and its sleep: the kernel has told another thread."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    assert other.ident is not None
    out = bytearray(10)
    before = signal.signal(signal.SIGUSR1, lambda *_: feed(pipe, b"water"))
    timer = threading.Timer(0.05, signal.pthread_kill, (other.ident, signal.SIGUSR1))
    try:
        with BlockFile(pipe, mode="r+", queue=queue) as file:
            timer.start()
            assert file.read(0, out) == 5
    finally:
        signal.signal(signal.SIGUSR1, before)
        over.set()
        other.join()
        timer.join()
    assert out[:5] == b"water"


@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_a_queue_above_its_quarantine_works_again_when_the_read_has_ended(
    pipe: Path, path: Path, engine: str
) -> None:
    """One Ctrl-C must not stop a thread's reads for good: nobody else looks after its ring."""
    with (
        Queue(engine=engine, max_quarantine_bytes=5) as queue,
        BlockFile(pipe, mode="r+", queue=queue) as slow,
        BlockFile(path, queue=queue) as file,
    ):
        calls: list[Callable[[bytearray], bool]] = [
            lambda out: file.read_many([0], out).tolist() == [10],
            lambda out: file.read(0, out) == 10,
            lambda out: file.submit("read", 0, out).result(10) == 10,
        ]
        for call in calls:
            interrupt_in_flight(slow)
            with pytest.raises(LimitError, match="max_quarantine_bytes"):
                call(bytearray(10))
            feed(pipe, b"water")

            def goes_on(call: Callable[[bytearray], bool] = call) -> bool:
                try:
                    return call(bytearray(10))
                except LimitError:
                    return False

            until(goes_on)


def test_what_was_given_up_leaves_the_figures_when_it_has_ended(pipe: Path, queue: Queue) -> None:
    """Who waits for the quarantine to empty must not wait for ever, though nobody reads."""
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        interrupt_in_flight(file)
        feed(pipe, b"water")
        until(lambda: queue.stats()["quarantined_batches"] == 0)


def _fails_beside_a_read_that_was_given_up(pipe: str, engine: str) -> None:
    with (
        Queue(engine=engine) as queue,
        BlockFile(pipe, mode="r+", queue=queue) as slow,
        BlockFile("/dev/full", mode="r+", queue=queue) as full,
    ):
        interrupt_in_flight(slow)
        listed = [(0, 0, 512, 0, WRITE, 0), (0, 0, 0, 0, FSYNC, 0)]
        results = queue.run(listed, full, bytes(512), return_errors=True)
        assert results.tolist() == [-errno.ENOSPC, -errno.ECANCELED]
        feed(Path(pipe), b"water")


@pytest.mark.parametrize("engine", ["ring", "threads"])
def test_a_batch_that_ends_without_the_kernel_waits_for_nothing(pipe: Path, engine: str) -> None:
    """A commit that fails after a Ctrl-C waited for the read that nobody waited for."""
    alone(_fails_beside_a_read_that_was_given_up, pipe, engine)


def _reads_in_a_handler(pipe: str, path: str) -> None:
    with Queue(engine="ring") as queue:
        slow, file = BlockFile(pipe, mode="r+", queue=queue), BlockFile(path, queue=queue)

        def read(*_: object) -> None:
            assert file.read_many([0, 0], bytearray(20)).tolist() == [10, 10]
            feed(Path(pipe), b"water")

        with after(0.05, read):
            assert slow.read(0, bytearray(10)) == 5
        assert ring_mappings() > 0
        queue.close()
        assert ring_mappings() == 0


def test_a_close_ends_the_rings_of_signal_handlers_too(pipe: Path, path: Path) -> None:
    """A ring that stays behind keeps its files open, and its memory."""
    alone(_reads_in_a_handler, pipe, path)
