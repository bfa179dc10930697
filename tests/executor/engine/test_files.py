"""Items and results of a worker elsewhere: written here as there, also where there is no room."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.executor.engine.files import FileSender, FileWriter
from forebay.executor.engine.link import ITEMS, RESULT, Link
from forebay.executor.wire.ids import text_of
from forebay.executor.wire.items import COUNTS, COUNTS_AT, HEAD_BYTES, LENGTH, head_of
from forebay.executor.worker.item_file import OPEN_MAX, ItemFile
from forebay.executor.worker.results import name_of

NUMBER = 123_456_789_012
RUN = (NUMBER, 1)


class Both:
    """The sender of a node and the keeper of the server, over a link."""

    def __init__(self, tmp_path: Path) -> None:
        self.node, self.state = tmp_path / "node", tmp_path / "state"
        for directory in ("items", "results"):
            (self.state / directory).mkdir(parents=True)
        here, there = socket.socketpair()
        self._link = Link(there, "the server", 5.0)
        self._other = Link(here, "the node", 5.0)
        self.sender = FileSender(str(self.node), self._link)
        self.keeper = FileWriter(str(self.state), synced=True)

    def close(self) -> None:
        """Close both ends."""
        self._link.close()
        self._other.close()

    def carry(self) -> None:
        """Have the keeper take everything that was sent."""
        while self._link.pending or select.select((self._other,), (), (), 0.05)[0]:
            self._link.flush()
            for kind, number, body in self._other.take():
                add = {ITEMS: self.keeper.add_items, RESULT: self.keeper.add_result}[kind]
                add(number, body)

    def yielded(self, items: list[bytes], attempt: int = 1) -> None:
        """Have a worker of the node begin a run and yield these."""
        file = ItemFile(str(self.node / "items"), text_of(NUMBER), attempt, stays_open=True)
        descriptor = file.descriptor
        assert descriptor is not None
        end = HEAD_BYTES
        for item in items:
            os.pwrite(descriptor, LENGTH.pack(len(item)) + item, end)
            end += LENGTH.size + len(item)
        os.pwrite(descriptor, COUNTS.pack(len(items), end), COUNTS_AT)
        os.close(descriptor)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """Both ends, in directories of their own."""
    with contextlib.closing(Both(tmp_path)) as both:
        yield both


def kept(both: Both) -> bytes:
    """The items that the server has."""
    return (both.state / "items" / text_of(NUMBER)).read_bytes()[HEAD_BYTES:]


def test_items_come_as_they_grow_and_the_last_before_the_reply(both: Both) -> None:
    """The head counts what is there; nothing is left on the node."""
    both.yielded([])
    both.sender.send_items(RUN)
    both.carry()
    path = str(both.state / "items" / text_of(NUMBER))
    assert head_of(path) == (1, 0, HEAD_BYTES)
    both.yielded([b"one", b"two" * 700_000])
    both.sender.send_items(RUN)
    both.carry()
    both.yielded([b"one", b"two" * 700_000, b"three"])
    both.sender.before_reply(RUN, has_result=False)
    both.carry()
    head = head_of(path)
    assert head is not None
    assert head.number == 3
    assert head.end == HEAD_BYTES + len(kept(both))
    assert kept(both).endswith(LENGTH.pack(5) + b"three")
    assert both.keeper.end(RUN) is None
    assert os.listdir(both.node / "items") == []


def test_another_run_begins_the_next_epoch(both: Both) -> None:
    """Of the server's file, whatever the node counts: each node begins with one."""
    for attempt in (1, 2, 3):
        both.yielded([b"of run %d" % attempt], attempt)
        both.sender.send_items((NUMBER, attempt))
        both.sender.before_reply((NUMBER, attempt), has_result=False)
        both.carry()
        head = head_of(str(both.state / "items" / text_of(NUMBER)))
        assert head is not None
        assert (head.epoch, head.number) == (attempt, 1)
        assert both.keeper.end((NUMBER, attempt)) is None


@pytest.mark.parametrize("size", [0, 5, 3 << 20])
def test_results_come_before_the_reply(both: Both, size: int) -> None:
    """Whole, under the name that the server looks for."""
    name = name_of(text_of(NUMBER), 1)
    data = os.urandom(size)
    (both.node / "results" / name).write_bytes(data)
    both.sender.before_reply(RUN, has_result=True)
    both.carry()
    assert both.keeper.end(RUN) is None
    assert (both.state / "results" / name).read_bytes() == data
    assert os.listdir(both.node / "results") == []


def test_what_cannot_be_kept_is_told_with_the_end_of_the_run(both: Both) -> None:
    """Once; no part of a result is left."""
    name = name_of(text_of(NUMBER), 1)
    (both.node / "results" / name).write_bytes(b"x" * (3 << 20))
    both.sender.before_reply(RUN, has_result=True)
    (both.state / "results").rmdir()
    both.carry()
    failure = both.keeper.end(RUN)
    assert failure is not None
    assert text_of(NUMBER) in failure
    assert "cannot be kept" in failure
    assert both.keeper.end(RUN) is None


@pytest.mark.parametrize("kind", ["link", "name", "directory", "pipe"])
def test_what_is_no_file_of_the_worker_is_not_sent(both: Both, tmp_path: Path, kind: str) -> None:
    """The server says that there is none; nobody waits for what a request has put there."""
    path, other = both.node / "results" / name_of(text_of(NUMBER), 1), tmp_path / "other"
    other.write_bytes(b"x" * 10)
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(other),
        "name": lambda: os.link(other, path),
        "directory": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
    }
    make[kind]()
    both.sender.before_reply(RUN, has_result=True)
    both.carry()
    assert both.keeper.end(RUN) is None
    assert os.listdir(both.state / "results") == []
    assert other.read_bytes() == b"x" * 10


def piece(items: list[bytes], count: int, offset: int) -> bytes:
    """Items as they come from a node, as the last of so many."""
    data = b"".join(LENGTH.pack(len(item)) + item for item in items)
    return struct.pack("<IQQQ", RUN[1], offset, count, offset + len(data)) + data


def test_no_item_counts_behind_one_that_could_not_be_kept(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers would read a hole, once there is room again; the error names the item."""
    assert both.keeper.add_items(NUMBER, piece([b"one"], 1, HEAD_BYTES))
    write = os.pwrite

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    assert not both.keeper.add_items(NUMBER, piece([b"x" * 1_000_000], 2, HEAD_BYTES + 7))
    monkeypatch.setattr(os, "pwrite", write)
    assert not both.keeper.add_items(NUMBER, piece([b"three"], 3, HEAD_BYTES + 1_000_011))
    head = head_of(str(both.state / "items" / text_of(NUMBER)))
    assert head is not None
    assert head.number == 1
    assert "item 2 of 1.0 MB cannot be kept" in str(both.keeper.end(RUN))


def test_more_runs_yield_items_than_files_stay_open(both: Both) -> None:
    """A thousand open files are the end of many a process."""
    both.keeper = FileWriter(str(both.state), synced=False)
    before = len(os.listdir("/proc/self/fd"))
    runs = range(NUMBER, NUMBER + OPEN_MAX + 50)
    for count, offset in ((1, HEAD_BYTES), (2, HEAD_BYTES + 7)):
        for number in runs:
            assert both.keeper.add_items(number, piece([b"one"], count, offset))
    assert len(os.listdir("/proc/self/fd")) <= before + OPEN_MAX
    for number in runs:
        head = head_of(str(both.state / "items" / text_of(number)))
        assert head is not None
        assert head.number == 2
        assert both.keeper.end((number, RUN[1])) is None
    assert len(os.listdir("/proc/self/fd")) == before
