"""Reading lists of blocks: what is read, what arguments may be, and what is refused."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio import OPERATION, BlockFile, Queue
from forebay.errors import BlockError, ClosedError, ConfigError
from forebay.memory import Arena
from tests.blockio.blocks import BLOCK_BYTES, BLOCKS, Blocks, content, shuffled


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 191, 192, 193, BLOCKS])
def test_each_block_lands_where_its_offset_stands(file: BlockFile, out: Blocks, count: int) -> None:
    """A list longer than what is in flight at once must not be cut or mixed up."""
    offsets = shuffled(count)
    read = file.read_many(offsets, out[:count])
    assert read.dtype == np.int64
    assert read.tolist() == [BLOCK_BYTES] * count
    assert np.array_equal(out[:count], content()[offsets // BLOCK_BYTES])


def test_lengths_leave_the_rest_of_each_block_alone(file: BlockFile, out: Blocks) -> None:
    """Records of different sizes are read into slots of one size."""
    lengths = np.array([10, 0, 4096], np.uint32)
    read = file.read_many([0, 4096, 8192], out[:3], lengths=lengths)
    assert read.tolist() == [10, 0, 4096]
    assert (out[0, :10] == content()[0, :10]).all()
    assert not out[0, 10:].any()
    assert not out[1].any()


def test_the_end_of_the_file_is_a_short_read(file: BlockFile, out: Blocks) -> None:
    """A last block that is not full has to be readable, and told from a full one."""
    end = BLOCKS * BLOCK_BYTES
    assert file.read_many([end - 100, end, end + 5], out[:3]).tolist() == [100, 0, 0]


def test_exact_makes_the_end_of_the_file_an_error(file: BlockFile, out: Blocks) -> None:
    """Who asked for a record must not take half of one for it."""
    end = BLOCKS * BLOCK_BYTES
    with pytest.raises(BlockError) as caught:
        file.read_many([0, end - 100], out[:2], exact=True)
    assert (caught.value.index, caught.value.errno) == (1, errno.ENODATA)


@pytest.mark.parametrize(
    "offsets",
    [
        [4096, 0],
        (4096, 0),
        range(4096, -1, -4096),
        np.array([4096, 0], np.int64),
        np.array([4096, 0], np.uint64),
        np.array([4096, 0], np.uint16),
        np.array([4096, 7, 0], ">u8")[::2],
        array("Q", [4096, 0]),
        array("q", [4096, 0]),
        memoryview(array("Q", [4096, 0])),
    ],
    ids=lambda offsets: type(offsets).__name__,
)
def test_offsets_may_be_any_whole_numbers(file: BlockFile, out: Blocks, offsets: Any) -> None:
    """What numpy or a list comprehension gives is used as it is."""
    assert file.read_many(offsets, out[:2]).tolist() == [4096, 4096]
    assert (out[:2] == content()[[1, 0]]).all()


@pytest.mark.parametrize(
    "offsets",
    [[0.0, 1.0], [-4096, 0], np.array([-4096, 0]), [[0, 1]], 5, ["a", "b"], [0, 2**64], [None]],
)
def test_what_is_no_offset_is_refused(file: BlockFile, out: Blocks, offsets: Any) -> None:
    """A float that is cut, or a negative number that wraps, would read another place."""
    with pytest.raises(ConfigError, match="offset"):
        file.read_many(offsets, out[:2])


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint16, ">u4"])
def test_lengths_may_be_any_whole_numbers(file: BlockFile, out: Blocks, kind: Any) -> None:
    """What numpy makes of a list are 64-bit numbers; each would be taken for two lengths."""
    lengths = np.array([10, 20, 30, 40], kind)
    assert file.read_many([0, 0, 0, 0], out[:4], lengths=lengths).tolist() == [10, 20, 30, 40]
    with pytest.raises(ConfigError, match="lengths"):
        file.read_many([0, 0, 0, 0], out[:4], lengths=lengths[:2])


def test_rows_of_numbers_are_refused(file: BlockFile, out: Blocks) -> None:
    """A table that was meant otherwise would be read as one long list."""
    table = np.zeros((2, 3), np.int64)
    with pytest.raises(ConfigError, match="offsets have shape"):
        file.read_many(table, out[:6])
    with pytest.raises(ConfigError, match="lengths have shape"):
        file.read_many(table.reshape(6), out[:6], lengths=table.astype(np.uint32))
    with pytest.raises(ConfigError, match="2 dimensions"):
        file.read_many(table.reshape(6), out[:6], results=table)
    with pytest.raises(ConfigError, match="operations have shape"):
        file.queue.run(np.zeros((2, 3), OPERATION), file, out)


def test_results_go_where_the_caller_says(file: BlockFile, out: Blocks) -> None:
    """A loop that reads for hours must not make an array each time."""
    results = np.full(2, 77)
    assert file.read_many([0, 4096], out[:2], results=results) is results
    assert results.tolist() == [4096, 4096]


@pytest.mark.parametrize(
    "results", [np.zeros(2, np.int32), np.zeros(3, np.int64), np.zeros(2), np.zeros(4, int)[::2]]
)
def test_results_that_do_not_fit_are_refused(file: BlockFile, out: Blocks, results: Any) -> None:
    """Results written as something else would be read as nonsense."""
    with pytest.raises(ConfigError, match="int64"):
        file.read_many([0, 4096], out[:2], results=results)


def test_a_read_only_buffer_is_refused(file: BlockFile) -> None:
    """The kernel would write into a constant."""
    frozen = np.zeros(4096, np.uint8)
    frozen.flags.writeable = False
    for out in (bytes(4096), frozen):
        with pytest.raises(ConfigError, match="writable"):
            file.read_many([0], out)
        with pytest.raises(ConfigError, match="writable"):
            file.read(0, out)
    with pytest.raises(TypeError):
        file.read_many([0], None)


def test_a_buffer_with_gaps_or_a_fraction_of_a_block_is_refused(
    file: BlockFile, out: Blocks
) -> None:
    """Blocks would land beside their rows."""
    with pytest.raises(ConfigError, match="contiguous"):
        file.read_many([0, 4096], out[:4:2])
    with pytest.raises(ConfigError, match="multiple of 3"):
        file.read_many([0, 1, 2], bytearray(100))


def test_memory_of_an_arena_and_plain_bytes_are_read_into(file: BlockFile) -> None:
    """Each kind of memory that a program has is good for reads."""
    arena = Arena("64MiB")
    rows, buffer, plain = arena.empty((2, 4096), np.uint8), arena.allocate(8192), bytearray(8192)
    for memory in (rows, buffer, plain):
        assert file.read_many([0, 4096], memory).tolist() == [4096, 4096]
        assert bytes(memory) == content()[:2].tobytes()


def test_reads_of_registered_memory_give_the_same_bytes(path: Path, out: Blocks) -> None:
    """Registering is about speed alone."""
    arena = Arena("64MiB")
    with Queue(arena=arena) as queue, BlockFile(path, queue=queue) as file:
        rows = arena.empty((BLOCKS, BLOCK_BYTES), np.uint8)
        file.read_many(shuffled(), rows)
        file.read_many(shuffled(), out)
        assert (rows == out).all()
        stats = queue.stats()
        assert (stats["registered_bytes"] > 0) or stats["unregistered"] is not None


def test_a_closed_queue_takes_no_arena() -> None:
    """It would keep the arena's memory for as long as it lives, and register none of it."""
    with Arena("4MiB") as arena, Queue() as queue:
        queue.close()
        with pytest.raises(ClosedError, match="queue"):
            queue.attach(arena)


def test_one_block_is_read_without_arrays(file: BlockFile) -> None:
    """A lookup of one record should not need three arrays."""
    out = bytearray(4096)
    assert file.read(4096, out) == 4096
    assert out == content()[1].tobytes()
    assert file.read(BLOCKS * BLOCK_BYTES - 6, out) == 6
    with pytest.raises(BlockError):
        file.read(BLOCKS * BLOCK_BYTES - 6, out, exact=True)


@pytest.mark.parametrize("offset", [-1, 2**63, 2**64, -(2**70)])
def test_one_offset_that_cannot_be_is_refused_as_those_of_a_list_are(
    file: BlockFile, offset: int
) -> None:
    """A program that catches what the package raises must not end with another exception."""
    out = bytearray(10)
    calls: list[Callable[[], object]] = [
        lambda: file.read(offset, out),
        lambda: file.write(offset, out),
        lambda: file.submit("read", offset, out),
        lambda: file.submit("write", offset, out),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=f"offset is {offset}"):
            call()
    with pytest.raises(TypeError):
        file.read("0", out)  # type: ignore[arg-type]


def test_an_error_names_file_operation_place_and_reason(tmp_path: Path, queue: Queue) -> None:
    """Whoever reads the log has to know which block of which file, and why."""
    with BlockFile(tmp_path, queue=queue) as directory, pytest.raises(BlockError) as caught:
        directory.read_many([0, 512], bytearray(200))
    assert isinstance(caught.value, OSError)
    assert (caught.value.index, caught.value.errno) == (0, errno.EISDIR)
    for part in (str(tmp_path), "read of 100 bytes at offset 0", "Is a directory", "operation 0"):
        assert part in str(caught.value)


def test_errors_are_values_where_asked(tmp_path: Path, queue: Queue) -> None:
    """A scan over a damaged disk goes on with the blocks that can be read."""
    with BlockFile(tmp_path, queue=queue) as directory:
        results = directory.read_many([0, 512], bytearray(200), return_errors=True)
    assert results.tolist() == [-errno.EISDIR] * 2


def test_direct_reads_are_checked_before_anything_is_read(path: Path, queue: Queue) -> None:
    """The kernel says EINVAL and no more; this says which number is wrong."""
    with BlockFile(path, direct=True, queue=queue) as file:
        memory, offset = file.alignment
        arena = Arena("64MiB")
        out = arena.empty((2, 64 << 10), np.uint8)
        assert file.read_many([0, 64 << 10], out).tolist() == [64 << 10] * 2
        assert (out.reshape(-1, BLOCK_BYTES) == content()[:32]).all()
        with pytest.raises(ConfigError, match=rf"operation 1: offset is 1.*multiples of {offset}"):
            file.read_many([0, 1], out)
        with pytest.raises(ConfigError, match="operation 0: length is 100"):
            file.read_many([0, 0], out, lengths=[100, 100])
        with pytest.raises(ConfigError, match=f"memory at multiples of {memory}"):
            file.read_many([0], out.reshape(-1)[1 : 1 + 4096])


def test_a_closed_file_or_queue_refuses(path: Path, out: Blocks) -> None:
    """Use after close must be an exception, not a read of another file."""
    queue = Queue()
    file = BlockFile(path, queue=queue)
    queue.close()
    with pytest.raises(ClosedError, match="queue"):
        file.read_many([0], out[:1])
    file.close()
    file.close()
    assert file.closed
    for use in (lambda: file.read_many([0], out[:1]), file.fileno, lambda: file.size_bytes):
        with pytest.raises(ClosedError, match="blocks is closed"):
            use()


def test_other_threads_run_while_a_long_list_is_checked(file: BlockFile) -> None:
    """A service must not stand still because one of its threads reads millions of blocks."""
    offsets = np.zeros(4_000_000, np.uint64)
    offsets[-1] = 1 << 63
    out = bytearray(len(offsets))
    stop = threading.Event()
    ran: list[float] = []

    def run() -> None:
        while not stop.is_set():
            ran.append(time.perf_counter())
            time.sleep(0.001)

    def ran_during(call: Callable[..., Any]) -> bool:
        begun = time.perf_counter()
        with pytest.raises(ConfigError, match="operation 3999999: offset"):
            call(offsets, out)
        took = time.perf_counter() - begun
        # Not close to the ends, where the interpreter switches threads by itself.
        return any(begun + 0.3 * took < at < begun + 0.7 * took for at in ran)

    other = threading.Thread(target=run)
    other.start()
    try:
        for call in (file.read_many, partial(file.submit, "read_many")):
            until = time.monotonic() + 20  # a busy machine may run it at another time
            while not ran_during(call):
                assert time.monotonic() < until
    finally:
        stop.set()
        other.join()


def test_a_file_that_is_not_there_is_a_file_not_found_error(tmp_path: Path, queue: Queue) -> None:
    """Old `except FileNotFoundError` keeps working."""
    with pytest.raises(FileNotFoundError, match="nothing"):
        BlockFile(tmp_path / "nothing", queue=queue)
    with pytest.raises(ConfigError, match="mode"):
        BlockFile(tmp_path / "nothing", mode="a", queue=queue)  # type: ignore[arg-type]


def test_importing_loads_neither_numpy_nor_asyncio() -> None:
    """A program without them would pay 100 ms for nothing."""
    code = "import sys, forebay.blockio; sys.exit({'numpy', 'asyncio'} & {*sys.modules} != set())"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=30).returncode == 0


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from array import array
from forebay.blockio import BlockFile
out = bytearray(8192)
with BlockFile(sys.argv[1]) as file:
    read = file.read_many([4096, 0], out)
    assert read == array("q", [4096, 4096]), read
    assert file.read_many(array("Q", [4096, 0]), out, lengths=[1, 2]) == array("q", [1, 2])
    assert file.submit("read_many", (0, 1), out).result() == array("q", [4096, 4096])
try:
    from forebay.blockio import OPERATION
except ModuleNotFoundError as error:
    assert "numpy" in str(error)
else:
    sys.exit("numpy is there")
"""


def test_it_works_without_numpy(path: Path) -> None:
    """A program without numpy reads blocks all the same: it is no requirement of the package."""
    command = [sys.executable, "-c", WITHOUT_NUMPY, str(path)]
    done = subprocess.run(command, check=False, timeout=30, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
