"""A window: what another process of the same user put into its arena, read in place."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from forebay import _core
from forebay.errors import BrokenError, ConfigError
from forebay.memory import open_window

OWNER = """
import sys
from forebay.memory import Arena
arena = Arena(8192)
array = arena.empty(16, "u1")
buffer = arena.allocate(64)
array[:] = 0
print(arena.share(0), flush=True)
for line in sys.stdin:
    array[:] = int(line)
    print("written", flush=True)
"""


class Owner:
    """A process with an arena, whose first array it fills with a number when told to."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pidfd = os.pidfd_open(self.process.pid)
        self.descriptor = int(self.answer())

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def write(self, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        assert self.answer() == "written\n"

    def end(self) -> None:
        self.process.kill()
        select.select([self.pidfd], [], [], 10)

    def close(self) -> None:
        self.end()
        self.process.communicate()
        os.close(self.pidfd)


@pytest.fixture
def owner() -> Iterator[Owner]:
    made = Owner()
    yield made
    made.close()


def test_what_the_owner_writes_is_seen_in_place(owner: Owner) -> None:
    """No copy and no message: the same pages, under another address."""
    window = open_window(owner.pidfd, owner.process.pid, owner.descriptor)
    array = np.frombuffer(window, np.uint8, 16)
    for number in (7, 9):
        owner.write(number)
        assert array.tolist() == [number] * 16
    assert len(window) == 8192


def test_a_window_can_be_read_only(owner: Owner) -> None:
    """A client cannot change what a service wrote, by mistake or otherwise."""
    window = open_window(owner.pidfd, owner.process.pid, owner.descriptor)
    assert memoryview(window).readonly
    with pytest.raises(ValueError, match="read-only"):
        np.frombuffer(window, np.uint8)[0] = 1
    with pytest.raises(PermissionError):
        os.open(f"/proc/{owner.process.pid}/fd/{owner.descriptor}", os.O_RDWR | os.O_TRUNC)


def test_a_window_outlives_its_owner(owner: Owner) -> None:
    """The last observation of an environment that died is still there."""
    window = open_window(owner.pidfd, owner.process.pid, owner.descriptor)
    owner.write(5)
    owner.end()
    assert bytes(memoryview(window)[:3]) == b"\x05\x05\x05"


def test_a_process_that_has_ended_is_not_looked_into(owner: Owner) -> None:
    """Its number may be another one's by then."""
    owner.end()
    with pytest.raises(BrokenError, match=f"process {owner.process.pid}"):
        open_window(owner.pidfd, owner.process.pid, owner.descriptor)


def test_a_number_that_now_belongs_to_another_process_is_noticed(owner: Owner) -> None:
    """The pidfd of the process that is meant tells, whatever the number names now."""
    with subprocess.Popen(["true"]) as gone:
        ended = os.pidfd_open(gone.pid)
        select.select([ended], [], [], 10)
    with pytest.raises(BrokenError, match="has ended"):
        open_window(ended, owner.process.pid, owner.descriptor)
    os.close(ended)


@pytest.mark.parametrize("seals", [False, True])
def test_memory_that_is_no_chunk_is_refused(seals: bool) -> None:
    """A plain file, or a memfd that can still shrink under its reader."""
    if seals:
        descriptor = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
        os.truncate(descriptor, 4096)
    else:
        descriptor = os.open(sys.executable, os.O_RDONLY)
    with pytest.raises(ConfigError, match="only a chunk of an arena can"):
        _core.Window(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)  # it was given away


def test_rows_of_several_windows_are_read_as_one_batch(owner: Owner) -> None:
    """One call instead of an assignment for each row; what does not fit is refused before."""
    other = Owner()
    try:
        windows = [
            (open_window(each.pidfd, each.process.pid, each.descriptor), start)
            for each, start in ((owner, 0), (other, 4))
        ]
        owner.write(1)
        other.write(2)
        rows = _core.Rows(windows, [(0, 2), (8, 4)])
        pairs, fours = np.zeros((2, 2), np.uint8), np.zeros((2, 4), np.uint8)
        rows.read([pairs, fours])
        assert pairs.tolist() == [[1, 1], [2, 2]]
        assert fours.tolist() == [[1] * 4, [2] * 4]
        with pytest.raises(ValueError, match="outside of a window of 8192 bytes"):
            _core.Rows(windows, [(8190, 1), (0, 8190)])
        with pytest.raises(BufferError, match="4 writable contiguous bytes"):
            rows.read([np.zeros(5, np.uint8), fours])
        with pytest.raises(ValueError, match="one target for each span"):
            rows.read([pairs])
    finally:
        other.close()
