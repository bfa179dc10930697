"""Commit blocks: damage is told apart from a tear, and no append destroys what may be committed."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio.records.commit import (
    Commit,
    decode,
    encode,
    offset_of,
    read_commit,
    write_all,
)
from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.layout import BLOCK_BYTES, DATA_OFFSET, Layout
from forebay.cli import main
from forebay.errors import BlockError, BrokenError
from tests.blockio.record_files import PLAIN, counted, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_of_the_test")

NEWEST = Commit(8, 700)
COPIES = [offset_of(slot) + at for slot in (0, 1) for at in (0, BLOCK_BYTES // 2)]
COPY_BYTES = 28
KINDS = [
    pytest.param(0, True, id="grows"),
    pytest.param(0, False, id="grows without checksums"),
    pytest.param(200, True, id="circular"),
    pytest.param(200, False, id="circular without checksums"),
]


@pytest.fixture
def path(tmp_path: Path, capacity: int, checksums: bool) -> str:
    """A file of 700 records, the last of them in a commit of their own; a circular one is full."""
    name = str(tmp_path / "test.fbr")
    with RecordFile(name, PLAIN, mode="a", capacity=capacity or None, checksums=checksums) as file:
        for start in range(0, 700, 50 if capacity else 100):
            file.append(numbered(start, 50 if capacity else 100))
    return name


def overwrite(path: str, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def all_there(path: str, mode: str) -> None:
    """The whole window, to the last record."""
    with RecordFile(path, mode=mode) as file:  # type: ignore[call-overload]
        records = everything(file)
        assert file.appended == 700
        assert whole(records)
        assert records["number"].tolist() == list(range(file.first, 700))


@pytest.mark.parametrize(("capacity", "checksums"), [KINDS[0], KINDS[3]])
def test_no_flipped_bit_of_the_commit_blocks_loses_a_record(path: str) -> None:
    """One bit of 65,536 cost the records of a night, without a word, and for good."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        layout = Layout.decode(os.pread(descriptor, BLOCK_BYTES, 0), path)
        newest = read_commit(descriptor, path, layout)
        blocks = os.pread(descriptor, 2 * BLOCK_BYTES, BLOCK_BYTES)
        with counted() as step:
            for at, byte in enumerate(blocks):
                for bit in range(8):
                    step()
                    os.pwrite(descriptor, bytes([byte ^ (1 << bit)]), BLOCK_BYTES + at)
                    assert read_commit(descriptor, path, layout) == newest, (at, bit)
                os.pwrite(descriptor, bytes([byte]), BLOCK_BYTES + at)
    finally:
        os.close(descriptor)
    assert newest.appended == 700


@pytest.mark.parametrize(("capacity", "checksums"), KINDS)
@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_damaged_copy_costs_nothing_and_is_repaired(path: str, mode: str) -> None:
    """The next append cut off everything behind the commit before."""
    healthy = Path(path).read_bytes()
    with counted() as step:
        for copy, at in itertools.product(COPIES, range(0, COPY_BYTES, 3)):
            step()
            Path(path).write_bytes(healthy)
            overwrite(path, copy + at, bytes([healthy[copy + at] ^ 0x10]))
            all_there(path, mode)
            is_whole = main(["records", "inspect", path]) == 0
            assert is_whole == (mode == "a"), "shown until it is repaired"
        with RecordFile(path, mode="a") as file:
            file.append(numbered(700, 3))
        assert main(["records", "inspect", path]) == 0, "shown until it is repaired"
    with RecordFile(path) as file:
        assert everything(file)["number"].tolist() == list(range(file.first, 703))


@pytest.mark.parametrize(("capacity", "checksums"), KINDS)
def test_any_damaged_copies_leave_every_record_or_an_error(
    path: str, capacity: int, checksums: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error can be acted on; a file that is shorter than it was is used as if it were whole."""
    healthy = Path(path).read_bytes()
    with open(path, "rb") as raw:
        layout = Layout.decode(healthy[:BLOCK_BYTES], path)
        newest = read_commit(raw.fileno(), path, layout).sequence % 2
    subsets = [set(some) for n in range(1, 5) for some in itertools.combinations(COPIES, n)]
    with counted() as step:
        for damaged in subsets:
            step()
            Path(path).write_bytes(healthy)
            for copy in damaged:
                overwrite(path, copy + 9, b"not this one")
            blocks = [set(COPIES[:2]) <= damaged, set(COPIES[2:]) <= damaged]
            if blocks[newest] or (any(blocks) and capacity > 0 and not checksums):
                is_told(path)
                assert main(["records", "inspect", "--verify", path]) == 1
                assert "wrong" in capsys.readouterr().err
            else:
                all_there(path, "r")
                all_there(path, "a")


def is_told(path: str) -> None:
    """Nobody opens the file, and nothing is written to it."""
    before = Path(path).read_bytes()
    for mode in ("r", "a"):
        with pytest.raises(BrokenError, match=r"commit blocks? .*wrong.*; restore it"):
            RecordFile(path, mode=mode)  # type: ignore[call-overload]
    assert Path(path).read_bytes() == before


def test_a_lost_block_is_told_where_every_place_is_used_once(tmp_path: Path) -> None:
    """The next record goes over the first one, and the file does not grow by it."""
    path = str(tmp_path / "test.fbr")
    with RecordFile(path, PLAIN, mode="a", capacity=100, checksums=True) as file:
        slots = file.layout.slots
        file.append(numbered(0, slots))
        file.append(numbered(slots, 1))
        assert file._appender is not None
        newest = file._appender.commit
    assert newest.appended == slots + 1
    overwrite(path, offset_of(newest.sequence), b"\xff" * BLOCK_BYTES)
    is_told(path)


@pytest.mark.parametrize(("capacity", "checksums"), KINDS)
def test_a_block_that_is_lost_under_a_reader_is_told(path: str) -> None:
    """A reader that goes on with fewer records trains on the same ones for ever."""
    with RecordFile(path) as reader:
        newest = reader._commit.sequence
        overwrite(path, offset_of(newest), b"\xff" * BLOCK_BYTES)
        with pytest.raises(BrokenError, match=f"commit block {newest % 2} is wrong in both copies"):
            reader.refresh()


@pytest.mark.parametrize(("capacity", "checksums"), KINDS)
@pytest.mark.parametrize("which", [0, 1])
def test_a_torn_commit_counts_and_is_completed(path: str, which: int) -> None:
    """A tear that stays would make the next damaged copy cost a commit."""
    with RecordFile(path, mode="a") as file:
        assert file._appender is not None
        commit = file._appender.commit
    torn = Commit(commit.sequence + 1, commit.appended)
    half = encode(torn)[: BLOCK_BYTES // 2]
    overwrite(path, offset_of(torn.sequence) + which * BLOCK_BYTES // 2, half)
    with open(path, "rb") as raw:
        block = decode(raw.read(DATA_OFFSET)[offset_of(torn.sequence) :][:BLOCK_BYTES], torn[0] % 2)
    assert (block.commit, block.damaged, block.torn) == (torn, 0, True)
    assert main(["records", "inspect", path]) == 0
    all_there(path, "r")
    all_there(path, "a")
    content = Path(path).read_bytes()
    for slot in (0, 1):
        start = offset_of(slot)
        one, other = content[start : start + COPY_BYTES], content[start + BLOCK_BYTES // 2 :]
        assert other.startswith(one)


def test_a_file_that_is_cut_under_its_writer_takes_no_more(tmp_path: Path) -> None:
    """Behind the cut there was a hole, and its records were read as zeros without an error."""
    path = tmp_path / "test.fbr"
    with RecordFile(path, "<i8", mode="a") as file:
        file.append(np.arange(10_000))
        with RecordFile(path) as reader:
            os.truncate(path, DATA_OFFSET + 8 * 4_000)
            for _ in range(2):
                with pytest.raises(BrokenError, match="its 10000 committed records need 92288"):
                    file.append(np.arange(10_000, 10_010))
            with pytest.raises(BrokenError, match="its 10000 committed records need 92288"):
                reader.refresh()
        assert os.path.getsize(path) == DATA_OFFSET + 8 * 4_000
    with pytest.raises(BrokenError, match="its 10000 committed records need 92288"):
        RecordFile(path, mode="a")


@pytest.mark.parametrize("capacity", [None, 100])
def test_a_record_in_the_place_of_another_is_found(
    tmp_path: Path, capacity: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that never reached the disk leaves an older record, whose own checksum is right."""
    path = tmp_path / "test.fbr"
    with RecordFile(path, PLAIN, mode="a", capacity=capacity, checksums=True) as file:
        file.append(numbered(0, 120))
        offset, stride = file.layout.offset(100), file.layout.stride_bytes
        older = path.read_bytes()[offset : offset + stride]
        slots = file.layout.slots or 1
        file.append(numbered(120, slots + 80))
        number = 100 + (slots if capacity else 50)
        overwrite(str(path), file.layout.offset(number), older)
        index = number - file.first
        refused = pytest.raises(BlockError, match=f"checksum of record {number} .index 1 of")
        with counted() as step, refused:
            step()
            file.gather([index - 1, index, index + 1])
    assert main(["records", "inspect", "--verify", str(path)]) == 1
    assert f"counted from 0 since the file was made: {number}\n" in capsys.readouterr().err


def test_a_write_goes_on_behind_what_was_taken_and_fails_where_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that takes no byte and says no error would have an append try for ever."""
    tries, takes = [], iter([2, 1, 0])

    def take(_descriptor: int, data: memoryview, offset: int) -> int:
        tries.append((bytes(data), offset))
        return next(takes)

    monkeypatch.setattr(os, "pwrite", take)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as failed:
        write_all(-1, memoryview(b"record"), 512)
    assert failed.value.errno == errno.ENOSPC
    assert tries == [(b"record", 512), (b"cord", 514), (b"ord", 515)]
