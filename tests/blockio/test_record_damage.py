"""Damage: each flipped byte is a clear error or the commit before, and never a wrong record."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from forebay.blockio.records.commit import Commit, decode, encode, offset_of
from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.layout import BLOCK_BYTES
from forebay.errors import BlockError, BrokenError, ConfigError
from tests.blockio.alone import alone
from tests.blockio.record_files import PLAIN, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_of_the_test")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of three commits: 0, 10 and 30 records."""
    name = str(tmp_path / "test.fbr")
    with RecordFile(name, PLAIN, mode="a", checksums=True) as file:
        file.append(numbered(0, 10))
        file.append(numbered(10, 20))
    return name


def flip(path: str, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x10]))


@pytest.mark.parametrize("offset", [*range(0, 200, 7), BLOCK_BYTES - 1, 2000])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_flipped_byte_of_the_header_is_told(path: str, offset: int, mode: str) -> None:
    """The dtype that it names would turn every record into something else."""
    flip(path, offset)
    told = "is no record file" if offset < 8 else "is damaged: the header's checksum is wrong"
    with pytest.raises((ConfigError, BrokenError), match=told):
        RecordFile(path, mode=mode)  # type: ignore[arg-type]


def test_two_wrong_commits_are_told(path: str) -> None:
    """An empty buffer would look like a new one, and be written over."""
    for place in (0, 1):
        for copy in (0, BLOCK_BYTES // 2):
            flip(path, offset_of(place) + copy + 20)
    for mode in ("r", "a"):
        with pytest.raises(BrokenError, match="both commit blocks are wrong; restore it"):
            RecordFile(path, mode=mode)


def test_a_commit_in_the_wrong_place_does_not_count() -> None:
    """A block that the disk wrote somewhere else is right all the same."""
    assert decode(encode(Commit(4, 7)), 0) == (Commit(4, 7), 0, False)
    assert decode(encode(Commit(4, 7)), 1) == (None, 2, False)
    assert decode(encode(Commit(4, 7))[: BLOCK_BYTES // 2 + 27], 0) == (Commit(4, 7), 1, False)


@pytest.mark.parametrize("within", [0, 50, 111, 112, 115])
def test_a_flipped_byte_of_a_record_is_told_by_its_index(path: str, within: int) -> None:
    """A record is trained on, a thousand times, before anybody looks at it."""
    with RecordFile(path) as file:
        flip(path, file.layout.offset(17) + within)
        with pytest.raises(BlockError, match="checksum of record 17") as told:
            file.gather([3, 9, 17, 20])
        assert (told.value.index, told.value.errno) == (2, errno.EILSEQ)
        assert whole(file.gather([16, 18]))


def test_a_file_that_lost_its_end_is_told(path: str) -> None:
    """A copy that was broken off would fail in the middle of a night's training."""
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(BrokenError, match="its 30 committed records need"):
        RecordFile(path)


@pytest.mark.parametrize("content", [b"", b"fbrecord", b"#!/bin/sh\n" * 1000])
def test_another_file_is_not_touched(tmp_path: Path, content: bytes) -> None:
    """A mistyped path must not cost somebody's notes."""
    path = tmp_path / "notes"
    path.write_bytes(content)
    for mode in ("r", "a"):
        with pytest.raises(ConfigError, match="is no record file"):
            RecordFile(path, PLAIN, mode=mode)
    assert path.read_bytes() == content


def test_what_a_crash_left_behind_the_prefix_is_cut_off(path: str) -> None:
    """It would fill the disk, crash by crash."""
    size = os.path.getsize(path)
    with open(path, "ab") as file:
        file.write(b"torn" * 1000)
    with RecordFile(path) as reader:
        assert len(reader) == 30
    RecordFile(path, mode="a").close()
    assert os.path.getsize(path) == size


FULL = """
import resource, sys
from forebay.blockio.records.file import RecordFile
from forebay.errors import BlockError
from tests.blockio.record_files import PLAIN, numbered, everything, whole
file = RecordFile(sys.argv[1], mode="a")
size = file.layout.data_bytes(40)
file.gather([0] if len(file) else [])  # the limit is on the arena's memory too
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
try:
    file.append(numbered(30, 20))
except BlockError as error:
    print(error.index, error.errno, error)
print(file.append(numbered(30, 10)), len(file), whole(everything(file)))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(file.append(numbered(40, 20)), len(file), whole(everything(file)))
file.close()
"""


def test_a_full_disk_fails_that_append_alone(path: str) -> None:
    """A buffer that cannot grow must go on being read, and take more once there is room."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, path], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    refused, fits, more = done.stdout.splitlines() or [done.stderr, "", ""]
    assert refused.startswith(f"0 {errno.EFBIG} record file {path}: appending 20 records (2320")
    assert refused.endswith("failed: File too large; make room, and append it again")
    assert (fits, more) == ("30 40 True", "40 60 True"), done.stderr
    with RecordFile(path) as file:
        assert everything(file)["number"].tolist() == list(range(60))


def make_without_room(limit: str, directory: str) -> None:
    """Make a file where no more than its first two blocks can be written."""
    if limit == "RLIMIT_FSIZE":
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
    else:
        small = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", directory]
        subprocess.run(small, check=True)
    reason = {"RLIMIT_FSIZE": errno.EFBIG, "tmpfs": errno.ENOSPC}[limit]
    with pytest.raises(OSError, match=os.strerror(reason)) as told:
        RecordFile(f"{directory}/new.fbr", PLAIN, mode="a")
    assert told.value.errno == reason
    assert os.listdir(directory) == []


@pytest.mark.parametrize("limit", ["RLIMIT_FSIZE", "tmpfs"])
def test_a_file_that_cannot_be_written_whole_does_not_appear(tmp_path: Path, limit: str) -> None:
    """Half of one stood under its name, damaged for ever, and the next start found it."""
    prefix = () if limit == "RLIMIT_FSIZE" else ("unshare", "--user", "--map-root-user", "--mount")
    if prefix and subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no user namespaces: sysctl kernel.unprivileged_userns_clone=1")
    alone(make_without_room, limit, tmp_path, prefix=prefix)


def test_after_a_failed_sync_the_file_takes_no_more(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel forgets the pages that it could not write, and the next sync would succeed."""
    with RecordFile(path, mode="a") as file:
        descriptor, sync = file._file.fileno(), os.fdatasync
        kept = os.dup(descriptor)

        def sync_another(synced: int) -> None:
            """What cannot be synced is in the file's place when the records are written."""
            null = os.open("/dev/null", os.O_WRONLY)
            os.dup2(null, descriptor)
            os.close(null)
            sync(synced)

        monkeypatch.setattr(os, "fdatasync", sync_another)
        with pytest.raises(BlockError, match="whether it is on the disk is unknown") as told:
            file.append(numbered(30, 5))
        assert told.value.errno == errno.EINVAL
        monkeypatch.undo()
        os.dup2(kept, descriptor)
        os.close(kept)
        with pytest.raises(BrokenError, match="takes no more appends since a sync failed"):
            file.append(numbered(30, 5))
        assert len(file) == 30
        assert whole(everything(file))
    with RecordFile(path, mode="a") as file:
        assert file.append(numbered(30, 5)) == 30


def test_a_long_append_to_a_circular_file_says_how_much_is_in_it(tmp_path: Path) -> None:
    """Of several groups the first may be committed when the disk is full."""
    path = str(tmp_path / "circular.fbr")
    RecordFile(path, PLAIN, mode="a", capacity=1000).close()
    code = FULL.split("try:")[0].replace("data_bytes(40)", "data_bytes(600)") + (
        "group = file.layout.max_group\n"
        "try:\n    file.append(numbered(0, 900))\n"
        "except BlockError as error:\n    print(error.index, group, len(file), error)\n"
        "file.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    index, group, length, message = done.stdout.split(maxsplit=3)
    assert int(index) == int(length) == 2 * int(group) == 500, done.stderr
    assert "of which the first 500 are committed" in message
