"""Block I/O's benchmarks read what they say they read, and leave the machine as it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.blockio import claims as blockio
from benchmarks.blockio import depth1 as blockio_depth1
from benchmarks.blockio import file as blockio_file
from benchmarks.blockio import fio as blockio_fio
from benchmarks.blockio import limits as blockio_limits
from benchmarks.blockio import peers as blockio_peers
from benchmarks.blockio import sample as blockio_sample
from benchmarks.blockio import shared_ring as blockio_shared_ring
from benchmarks.blockio import zram as blockio_zram
from benchmarks.blockio.meter import CPU, RATE, repeat
from benchmarks.blockio.stores import VARIABLE, Stores

BLOCKS = 512


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """A file of 2 MiB."""
    path = tmp_path / "blocks"
    blockio_file.make(path, BLOCKS * blockio_file.BLOCK_BYTES)
    return path


@pytest.fixture
def told(blocks: Path, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """What a contestant's process is told: the file alone."""
    stores = Stores(disk=str(blocks))
    monkeypatch.setenv(VARIABLE, json.dumps(asdict(stores)))
    return stores


def test_every_block_of_the_file_is_written_and_begins_with_its_number(blocks: Path):
    """Holes are answered without the disk, and blocks that are alike hide a wrong read."""
    found = np.fromfile(blocks, np.uint8).reshape(BLOCKS, blockio_file.BLOCK_BYTES)
    blockio_file.check(np.arange(BLOCKS) * blockio_file.BLOCK_BYTES, found)
    assert len(np.unique(found[:, blockio_file.NUMBER_BYTES :], axis=0)) == BLOCKS
    assert blocks.stat().st_blocks * 512 >= BLOCKS * blockio_file.BLOCK_BYTES


def test_a_block_from_the_wrong_place_is_no_result(blocks: Path):
    """Who reads anything at all is not fast."""
    found = np.fromfile(blocks, np.uint8).reshape(BLOCKS, blockio_file.BLOCK_BYTES)
    offsets = np.arange(BLOCKS) * blockio_file.BLOCK_BYTES
    offsets[7] += blockio_file.BLOCK_BYTES
    with pytest.raises(ValueError, match="read 7 asked for block 8 and got 7"):
        blockio_file.check(offsets, found)


@pytest.mark.skipif(not Path("/dev/shm").is_mount(), reason="/dev/shm is not mounted")
def test_memory_is_not_taken_for_a_disk():
    """Rows of a disk are not measured on a tmpfs."""
    assert blockio_file.file_system(Path("/dev/shm"))[0] in blockio_file.IN_MEMORY
    with blockio_file.folder() as folder:
        assert blockio_file.file_system(folder)[0] not in blockio_file.IN_MEMORY
    assert not folder.exists()


def test_reads_are_counted_over_the_time_that_they_took():
    """A rate is that of the reads that were made."""
    steps: list[int] = []

    def step(number: int) -> int:
        steps.append(number)
        return 10

    figures = repeat(step, seconds=0.05, warm_up_s=0.0)
    assert steps == list(range(len(steps)))
    assert figures[RATE] == pytest.approx(len(steps) * 10 / 0.05, rel=0.5)
    assert figures[CPU] > 0


@pytest.mark.needs("fio")
def test_fio_reads_the_file_with_and_without_its_fast_options(told: Stores):
    """The yardstick runs as it is meant to, and its figures are found in what it prints."""
    for tuned in (0, 1):
        figures = blockio_fio.fio("cached", seconds=0.1, tuned=tuned)
        assert figures[RATE] > 1_000
        assert 0 < figures[CPU] < 1_000


def test_pythons_own_ways_read_the_file(told: Stores):
    """The peers that need no package are held to their blocks."""
    figures = blockio_peers.thread_pool("cached", threads=4, seconds=0.05, warm_up_s=0.01)
    assert figures[RATE] > 0
    assert blockio_depth1.preadv_reads("cached", calls=100, warm_up=10)["p50"] > 0


@pytest.mark.needs("cc")
def test_the_ring_that_threads_share_compiles_without_a_warning_and_reads_the_file(told: Stores):
    """What a ring for each thread is held against does run."""
    figures = blockio_shared_ring.shared_ring(
        "cached", clients=2, reads=8, seconds=0.05, warm_up_s=0.01
    )
    assert figures[RATE] > 1_000
    assert figures[CPU] > 0


def test_a_row_that_changes_the_machine_needs_to_be_asked_for(told: Stores):
    """Nobody's read-ahead is set because a benchmark was run."""
    with pytest.raises(PermissionError, match="give --limits"):
        blockio_sample.enter_limits()


def test_a_row_without_its_device_says_why(told: Stores):
    """A machine without zram is no failure of the run."""
    with pytest.raises(FileNotFoundError, match="no zram device: "):
        told.path("zram")
    optional = [claim.name for claim in blockio.CLAIMS if claim.optional]
    assert optional == ["blockio.zram.vs_fio", *(it.name for it in blockio_sample.CLAIMS)]
    series = {each.name: harness.Series(each) for each in harness.contestants(blockio.CLAIMS)}
    series["fio, zram"].failure = "no zram device"
    claim = next(claim for claim in blockio.CLAIMS if claim.optional)
    row = harness.row(claim, series, {})
    assert (row["ratio"], row["optional"]) == (None, True)


class Stopped(Exception):
    """Ends a run early."""


def stopped(source: Path, seen: list[Path]) -> None:
    """A run on a zram device with its read-ahead set, which is stopped in the middle."""
    with blockio_zram.zram(source) as copy:
        setting = blockio_limits.read_ahead_setting(copy)
        before = setting.read_text()
        with blockio_limits.read_ahead(copy, 64):
            assert copy.read_bytes() == source.read_bytes()
            assert setting.read_text().strip() == "64"
        assert setting.read_text() == before
        seen += [copy, setting]
        with blockio_limits.read_ahead(copy, 64):
            raise Stopped


def test_a_zram_disk_and_its_read_ahead_are_undone_when_the_run_is_stopped(blocks: Path):
    """A run that ends early leaves no device, no mount and no setting behind."""
    seen: list[Path] = []
    try:
        stopped(blocks, seen)
    except blockio_zram.NoZramError as error:
        pytest.skip(f"no zram device: {error}")
    except Stopped:
        assert len(seen) == 2
    assert not any(path.exists() for path in seen)
