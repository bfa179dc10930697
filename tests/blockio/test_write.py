"""Writing blocks, mixed batches, and the order of syncs."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio import FDATASYNC, FSYNC, OPERATION, READ, WRITE, BlockFile, Queue
from forebay.errors import BlockError, ConfigError
from tests.blockio.blocks import BLOCK_BYTES, content


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Have the kernel cut writes beyond a size; SIGXFSZ is ignored by Python."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_blocks_are_written_where_their_offsets_stand(tmp_path: Path, queue: Queue) -> None:
    """What was written is in the file, for every reader."""
    path = tmp_path / "new"
    with BlockFile(path, mode="x", queue=queue) as file:
        assert file.write_many([4096, 0], content()[:2].tobytes()).tolist() == [4096, 4096]
        assert file.write_many([8192], b"end", lengths=[2]).tolist() == [2]
        assert file.write(8194, b"d!") == 2
        file.fsync()
        file.fdatasync()
        assert file.size_bytes == 8196
    assert path.read_bytes() == content()[[1, 0]].tobytes() + b"end!"


def test_modes_are_those_of_open(tmp_path: Path, path: Path, queue: Queue) -> None:
    """A file opened to read is not written, and one that is there is not replaced by chance."""
    with (
        BlockFile(path, queue=queue) as file,
        pytest.raises(ConfigError, match="opened for reading"),
    ):
        file.write(0, b"x")
    with pytest.raises(FileExistsError):
        BlockFile(path, mode="x", queue=queue)
    with pytest.raises(FileNotFoundError):
        BlockFile(tmp_path / "nothing", mode="r+", queue=queue)
    with BlockFile(path, mode="w", queue=queue) as file:
        assert file.size_bytes == 0
        assert file.writable


def test_a_mixed_batch_does_all_of_its_operations(file: BlockFile, queue: Queue) -> None:
    """A store reads, writes and syncs with one system call."""
    buffer = bytearray(3 * BLOCK_BYTES)
    buffer[:5] = b"water"
    operations = np.zeros(4, OPERATION)
    operations["kind"] = [WRITE, READ, FDATASYNC, FSYNC]
    operations["offset"] = [10, BLOCK_BYTES, 0, 0]
    operations["buffer_offset"] = [0, BLOCK_BYTES, 0, 0]
    operations["length"] = [5, BLOCK_BYTES, 0, 0]
    assert queue.run(operations, file, buffer).tolist() == [5, BLOCK_BYTES, 0, 0]
    assert buffer[BLOCK_BYTES : 2 * BLOCK_BYTES] == content()[1].tobytes()
    assert os.pread(file.fileno(), 5, 10) == b"water"


def test_a_batch_may_be_on_several_files(tmp_path: Path, file: BlockFile, queue: Queue) -> None:
    """Blocks move between files without a visit to Python."""
    with BlockFile(tmp_path / "other", mode="w", queue=queue) as other:
        buffer = bytearray(content()[7].tobytes())
        listed = [(0, 0, 4096, 1, WRITE, 0), (0, 0, 0, 1, FSYNC, 0)]
        assert queue.run(listed, [file, other], buffer).tolist() == [4096, 0]
        assert other.size_bytes == 4096
        with pytest.raises(ConfigError, match="the batch has 2"):
            queue.run([(0, 0, 1, 2, READ, 0)], [file, other], buffer)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ((0, 0, 10, 0, 9, 0), "kind is 9"),
        ((0, 0, 10, 0, READ, 1), "flags is 1"),
        ((0, 4090, 10, 0, READ, 0), "buffer_offset is 4090"),
        ((2**63, 0, 10, 0, READ, 0), "offset is 9223372036854775808"),
        ((0, 0, 10, 3, READ, 0), "file is 3"),
    ],
)
def test_nothing_of_a_batch_with_a_wrong_operation_is_submitted(
    file: BlockFile, queue: Queue, operation: tuple[int, ...], words: str
) -> None:
    """Half of a batch must not have happened when the other half is refused."""
    buffer = bytearray(4096)
    listed = [(0, 0, 10, 0, WRITE, 0), operation]
    with pytest.raises(ConfigError, match=f"operation 1: {words}"):
        queue.run(listed, file, buffer)
    assert os.pread(file.fileno(), 10, 0) == content()[0, :10].tobytes()


def test_operations_of_another_type_are_refused(file: BlockFile, queue: Queue) -> None:
    """Fields in another order would be taken for others."""
    for listed in (np.zeros(2), np.zeros(2, [("a", "u8"), ("b", "u8"), ("c", "u8")])):
        with pytest.raises(ConfigError, match="OPERATION"):
            queue.run(listed, file, bytearray(8))


def test_a_read_only_buffer_is_good_for_writes_alone(file: BlockFile, queue: Queue) -> None:
    """`bytes` may be written to a file, and never read into."""
    assert queue.run([(0, 0, 3, 0, WRITE, 0)], file, b"abc").tolist() == [3]
    with pytest.raises(ConfigError, match="read-only"):
        queue.run([(0, 0, 3, 0, READ, 0)], file, b"abc")


def test_a_sync_after_a_short_write_is_not_issued(file: BlockFile, queue: Queue) -> None:
    """A sync that succeeds says that what was written before it is safe."""
    end = file.size_bytes
    listed = [(end, 0, 4096, 0, WRITE, 0), (0, 0, 0, 0, FSYNC, 0)]
    with file_size_limit(end + 100):
        results = queue.run(listed, file, bytes(4096), return_errors=True)
        assert results.tolist() == [100, -errno.ECANCELED]
        with pytest.raises(BlockError, match=r"fsync failed.*a write before it failed"):
            queue.run([(end, 0, 4096, 0, WRITE, 0), (0, 0, 0, 0, FSYNC, 0)], file, bytes(4096))
