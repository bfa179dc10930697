"""Power loss: whatever sectors of the writes since the last sync reached the disk, a clean prefix.

No machine is switched off. What an appender writes and syncs is written down while it happens, and
images of the disk are made of it: with everything up to a sync, and any sectors of what came after;
half of them have a damaged copy of a commit besides.
FOREBAY_RECORD_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path

import pytest

from forebay.blockio import RecordFile
from forebay.errors import BrokenError
from tests.blockio.record_files import PADDED, PLAIN, counted, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_of_the_test")

SEED = int(os.environ.get("FOREBAY_RECORD_SEED", str(secrets.randbits(16))))
SECTOR_BYTES = 512
LOSSES = 60
"""Moments at which the power is lost, of one run of appends."""

Event = tuple[int, bytes] | None
"""A write with its offset, or a sync."""


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Give everything that is written and synced, while it happens."""
    seen: list[Event] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(descriptor: int, data: bytes | memoryview, offset: int) -> int:
        written = pwrite(descriptor, data, offset)
        seen.append((offset, bytes(data[:written])))
        return written

    def sync(descriptor: int) -> None:
        fdatasync(descriptor)
        seen.append(None)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fdatasync", sync)
    return seen


def disk_after(start: bytes, events: list[Event], chance: random.Random) -> bytes:
    """An image of the disk when the power goes after these events."""
    synced = max((index for index, event in enumerate(events) if event is None), default=-1)
    disk = bytearray(start)
    for index, event in enumerate(events):
        if event is None:
            continue
        offset, data = event
        whole_write = index < synced or chance.random() < 0.3
        for at in range(-(offset % SECTOR_BYTES), len(data), SECTOR_BYTES):
            if whole_write or chance.random() < 0.5:
                piece = data[max(at, 0) : at + SECTOR_BYTES]
                begin = offset + max(at, 0)
                disk.extend(bytes(max(0, begin + len(piece) - len(disk))))
                disk[begin : begin + len(piece)] = piece
    return bytes(disk)


def damaged_copy(image: bytes, chance: random.Random) -> bytes:
    """The image with a flipped bit in one of the four copies of commits."""
    disk = bytearray(image)
    copy = chance.choice([4096, 6144, 8192, 10240])
    disk[copy + chance.randrange(28)] ^= 1 << chance.randrange(8)
    return bytes(disk)


@pytest.mark.parametrize("capacity", [None, 1, 30])
@pytest.mark.parametrize("dtype", [PLAIN, PADDED], ids=["packed", "padded"])
def test_any_sectors_of_unsynced_writes_leave_a_clean_prefix(
    tmp_path: Path, events: list[Event], capacity: int | None, dtype: object
) -> None:
    """An acknowledged record that is gone, or a window with a record that never was."""
    chance, path, lost = random.Random(SEED), tmp_path / "test.fbr", tmp_path / "lost.fbr"
    acknowledged = [(0, 0)]
    with RecordFile(path, dtype, mode="a", capacity=capacity) as file:  # type: ignore[arg-type]
        start = path.read_bytes()
        while file.appended < 200:
            n = chance.choice([1, 2, 7, 40])
            file.append(numbered(file.appended, n, file.dtype))
            acknowledged.append((len(events), file.appended))
    happened = list(events)
    with counted() as step:
        for _ in range(LOSSES):
            step()
            moment = chance.randrange(len(happened) + 1)
            image = disk_after(start, happened[:moment], chance)
            lost.write_bytes(damaged_copy(image, chance) if chance.random() < 0.5 else image)
            least = max(appended for when, appended in acknowledged if when <= moment)
            check_prefix(lost, least)


def check_prefix(path: Path, least: int) -> None:
    """What a file that the power left must hold, and go on with."""
    try:
        file = RecordFile(path, mode="a")
    except BrokenError as error:
        pytest.fail(f"no clean prefix: {error}, seed {SEED}")
    with file:
        assert file.appended >= least, f"acknowledged records are gone, seed {SEED}"
        records, wanted = everything(file), list(range(file.first, file.appended))
        assert whole(records), f"no clean prefix: a mixed record, seed {SEED}"
        assert records["number"].tolist() == wanted, f"no clean prefix, seed {SEED}"
        file.append(numbered(file.appended, 3, file.dtype))
        assert whole(everything(file)), f"no clean prefix after an append, seed {SEED}"
