"""Submits that fail: exactly what the kernel did not take fails, and the next batch is right."""

from __future__ import annotations

import asyncio
import errno
import re
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from forebay.blockio import OPERATION, READ, WRITE, BlockFile, Queue
from forebay.errors import BlockError, BrokenError, ConfigError
from tests.blockio.alone import alone
from tests.blockio.blocks import BLOCK_BYTES, Blocks, content
from tests.blockio.pipes import feed
from tests.blockio.seccomp import Enter, Says, decide_enters, needs_filters

MAX_BATCH = 8
COUNT = 20
"""Three submits: 8, 8 and 4 operations."""

FACES = ["blocking", "asyncio", "futures"]
OFFSETS = np.arange(COUNT, dtype=np.uint64)[::-1] * np.uint64(BLOCK_BYTES)
UNTOUCHED = 0xAA


class Refuse:
    """Says something to calls that submit; the I/O thread's own entries go out one at a time."""

    def __init__(self, said: int):
        self._said = Says(said)
        self._skip = self._times = 0

    def __call__(self, call: Enter) -> Says | None:
        """Decide a call."""
        if call.to_submit < 2:
            return None
        if self._skip > 0:
            self._skip -= 1
            return None
        self._times -= 1
        return self._said if self._times >= 0 else None

    def set(self, *, skip: int = 0, times: int) -> None:
        """Let some calls pass, and refuse those after them."""
        self._skip, self._times = skip, times


def read_on(face: str, path: str, queue: Queue, out: Blocks) -> npt.NDArray[np.int64]:
    """Read the blocks of `OFFSETS` on a face."""

    async def read() -> npt.NDArray[np.int64]:
        async with BlockFile(path, queue=queue) as file, asyncio.timeout(30):
            results: npt.NDArray[np.int64] = await file.read_many(OFFSETS, out, return_errors=True)
            return results

    if face == "asyncio":
        return asyncio.run(read())
    with BlockFile(path, queue=queue) as file:
        if face == "blocking":
            read_here: npt.NDArray[np.int64] = file.read_many(OFFSETS, out, return_errors=True)
            return read_here
        future = file.submit("read_many", OFFSETS, out, return_errors=True)
        results: npt.NDArray[np.int64] = future.result(30)
        return results


def rows() -> Blocks:
    """Room for the blocks, which shows what was written."""
    return np.full((COUNT, BLOCK_BYTES), UNTOUCHED, np.uint8)


def check_next(face: str, path: str, queue: Queue) -> None:
    """Whatever came before: a batch is read, and a close finds nothing left."""
    out = rows()
    assert read_on(face, path, queue, out).tolist() == [BLOCK_BYTES] * COUNT
    assert (out == content()[:COUNT][::-1]).all()
    assert queue.close() == 0


WRONG: list[tuple[str, Callable[[npt.NDArray[np.void]], None]]] = [
    ("kind is 9", lambda operation: operation.__setitem__("kind", 9)),
    ("flags is 1", lambda operation: operation.__setitem__("flags", 1)),
    ("file is 3", lambda operation: operation.__setitem__("file", 3)),
    ("buffer_offset is", lambda operation: operation.__setitem__("buffer_offset", 1 << 40)),
    ("offset is", lambda operation: operation.__setitem__("offset", 1 << 63)),
]


@pytest.mark.parametrize(("words", "spoil"), WRONG, ids=[words for words, _ in WRONG])
def test_a_wrong_operation_at_any_place_leaves_file_buffer_and_queue_as_they_were(
    file: BlockFile,
    queue: Queue,
    words: str,
    spoil: Callable[[npt.NDArray[np.void]], None],
) -> None:
    """Operations before the wrong one would be carried out later, into memory of somebody else."""
    count = 70  # more than one submit
    out = np.full((count, 16), UNTOUCHED, np.uint8)
    for index in range(count):
        operations = np.zeros(count, OPERATION)
        operations["kind"] = np.where(np.arange(count) % 2, READ, WRITE)
        operations["offset"] = np.arange(count) * 16
        operations["buffer_offset"] = np.arange(count) * 16
        operations["length"] = 16
        spoil(operations[index : index + 1])
        with pytest.raises(ConfigError, match=rf"operation {index}: {re.escape(words)}"):
            queue.run(operations, file, out)
    assert (out == UNTOUCHED).all()
    read = np.zeros((1, BLOCK_BYTES), np.uint8)
    assert file.read_many([0], read).tolist() == [BLOCK_BYTES]
    assert (read[0] == content()[0]).all()
    assert queue.stats()["operations"] <= 1


def _fails(path: str, face: str, skip: str, number: str) -> None:
    queue = Queue(engine="ring", max_batch=MAX_BATCH)
    refuse = Refuse(-int(number))
    refuse.set(skip=int(skip), times=1)
    decide_enters(refuse)
    out = rows()
    results = read_on(face, path, queue, out)
    expected = np.full(COUNT, BLOCK_BYTES)
    failed = slice(int(skip) * MAX_BATCH, (int(skip) + 1) * MAX_BATCH)
    expected[failed] = -int(number)
    assert results.tolist() == expected.tolist()
    assert (out[failed] == UNTOUCHED).all()
    taken = expected > 0
    assert (out[taken] == content()[:COUNT][::-1][taken]).all()
    check_next(face, path, queue)


@needs_filters
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_submit_that_fails_takes_its_own_operations_along_and_no_others(
    path: Path, face: str, skip: int
) -> None:
    """Half a batch in the ring makes the next one hang, and reads into memory that was freed."""
    alone(_fails, path, face, skip, errno.EINVAL if skip else errno.EBADF)


def _for_a_while(path: str, face: str, said: str) -> None:
    refuse = Refuse(int(said))
    decide_enters(refuse)
    for skip in range(3):
        queue = Queue(engine="ring", max_batch=MAX_BATCH)
        refuse.set(skip=skip, times=5)
        check_next(face, path, queue)


@needs_filters
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EBUSY, errno.ENOMEM, errno.EINTR])
def test_a_submit_that_is_put_off_is_tried_again(path: Path, face: str, number: int) -> None:
    """A machine that is short of memory for a moment must not fail reads, or hang them."""
    alone(_for_a_while, path, face, -number)


@needs_filters
@pytest.mark.parametrize("face", FACES)
def test_what_a_submit_did_not_take_goes_out_with_the_next(path: Path, face: str) -> None:
    """Whoever looks only for errors waits for ever for operations that nobody has."""
    alone(_for_a_while, path, face, 0)


def _for_good(path: str, face: str) -> None:
    refuse = Refuse(-errno.EAGAIN)
    refuse.set(times=1 << 40)
    queue = Queue(engine="ring", max_batch=MAX_BATCH)
    decide_enters(refuse)
    out = rows()
    results = read_on(face, path, queue, out)
    assert results.tolist() == [-errno.EAGAIN] * COUNT
    assert (out == UNTOUCHED).all()
    refuse.set(times=0)
    check_next(face, path, queue)


@needs_filters
@pytest.mark.parametrize("face", FACES)
def test_a_submit_that_is_put_off_for_good_is_an_error(path: Path, face: str) -> None:
    """A read that is tried for ever looks like a disk that has hung."""
    alone(_for_good, path, face)


def _no_completions(path: str, pipe: str) -> None:
    refused = False

    def decide(call: Enter) -> Says | None:
        return Says(-errno.EIO) if refused and call.to_submit == 0 else None

    def interrupt(*_: object) -> None:
        nonlocal refused
        refused = True

    queue = Queue(engine="ring")
    decide_enters(decide)
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # again: the read may not sleep yet
    out = bytearray(10)
    with BlockFile(pipe, mode="r+", queue=queue) as file:
        with pytest.raises(BrokenError, match="io_uring_enter"):
            file.read(0, out)
        signal.setitimer(signal.ITIMER_REAL, 0)
        refused = False
        assert queue.stats()["leaked_operations"] == 1
        assert queue.stats()["quarantined_batches"] == 0  # it will never be let go
        with pytest.raises(BufferError):
            out.extend(b"more")
        feed(Path(pipe), b"water")
    check_next("blocking", path, queue)


@needs_filters
def test_a_ring_that_gives_no_completions_is_given_up_with_its_memory(
    path: Path, pipe: Path
) -> None:
    """Everybody would wait for ever, or the kernel would write where nobody expects it."""
    alone(_no_completions, path, pipe)


def _refused_at_once(path: str) -> None:
    refused = 0

    def decide(_: Enter) -> Says:
        nonlocal refused
        refused += 1
        return Says(-errno.EBADF)

    queue = Queue(engine="ring")
    decide_enters(decide)
    file = BlockFile(path, queue=queue)
    with pytest.raises((BlockError, BrokenError), match="Bad file descriptor"):
        file.submit("read_many", [0, BLOCK_BYTES], bytearray(20)).result(10)
    assert refused <= 3
    with pytest.raises(BrokenError, match="make another queue"):
        file.submit("read_many", [0, BLOCK_BYTES], bytearray(20))
    assert queue.close() == 0


@needs_filters
def test_an_io_thread_that_cannot_wait_ends_and_says_so(path: Path) -> None:
    """It would use all of a core, and whoever handed something over would wait for ever."""
    alone(_refused_at_once, path)
