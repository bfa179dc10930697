"""Group commit: appends that arrive together share syncs, and each is told its own end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.blockio.records.append import Appender
from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.group import Append, Groups
from forebay.blockio.records.open import Wanted, open_appending
from forebay.errors import ClosedError
from tests.blockio.record_files import PLAIN, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_of_the_test")


def append_of(n: int) -> Append:
    return Append(np.zeros((n, 1), np.uint8))


@given(
    sizes=st.lists(st.integers(1, 9), max_size=20),
    max_group=st.integers(0, 7),
    moves=st.lists(st.sampled_from(["add", "commit", "fail", "abort", "withdraw"]), max_size=60),
)
def test_groups_keep_order_and_forget_nobody(
    sizes: list[int], max_group: int, moves: list[str]
) -> None:
    """Whatever happens in between: records follow each other, and each append ends once."""
    groups, appended, waiting, ended = Groups(max_group), 0, [append_of(n) for n in sizes], []
    queued: list[Append] = []
    for move in [*moves, *["add"] * len(sizes), *["commit"] * sum(sizes)]:
        if move == "add":
            if waiting:
                queued.append(waiting.pop(0))
                groups.add(queued[-1])
            continue
        if move == "withdraw":
            if queued and queued[-1].first < 0:
                assert groups.withdraw(queued[-1])
                assert not groups.withdraw(queued.pop())
            continue
        group = groups.begin()
        assert (group is None) == (not queued)
        if group is None:
            continue
        assert group.n == sum(stop - start for _, start, stop in group.parts)
        assert not max_group or group.n <= max_group
        assert not groups.withdraw(group.parts[0].append)
        if move == "commit":
            gone = groups.settle(appended)
            appended += group.n
        elif move == "fail":
            gone = groups.fail({group.parts[0].append: OSError("full")})
        else:
            groups.abort()
            gone = []
        for append in gone:
            assert append is queued.pop(0)
            ended.append(append)
    assert not groups
    assert queued == []
    through = [append for append in ended if append.error is None]
    assert all(append.committed == len(append.rows) for append in through)
    firsts = [append.outcome() for append in through]
    assert firsts == sorted(firsts)


def test_threads_share_syncs(tmp_path: Path) -> None:
    """Sixteen threads that each wait for a disk of their own would get a sixteenth of its speed."""
    with RecordFile(tmp_path / "test.fbr", PLAIN, mode="a") as file:
        assert file._appender is not None
        turn = file._appender._turn
        told: list[tuple[int, int]] = []

        def append(writer: int) -> None:
            told.append((file.append(numbered(writer * 10, 1 + writer, writer=writer)), writer))

        threads = [threading.Thread(target=append, args=(writer,)) for writer in range(16)]
        with turn:  # as while a commit lasts
            for thread in threads:
                thread.start()
            while len(file._appender._groups.everything()) < 16:
                time.sleep(0.001)
        for thread in threads:
            thread.join()
        assert file._appender.commit == (2, sum(range(1, 17)))
        records = everything(file)
        assert whole(records)
        for first, writer in told:
            own = records[first : first + 1 + writer]
            assert (own["writer"] == writer).all()
            assert own["number"].tolist() == list(range(writer * 10, writer * 11 + 1))


def test_a_close_fails_what_waits_and_lets_the_commit_end(tmp_path: Path) -> None:
    """A thread would wait for ever, or a record be half written."""
    file = RecordFile(tmp_path / "test.fbr", PLAIN, mode="a")
    file.append(numbered(0, 3))
    assert file._appender is not None
    errors: list[Exception] = []

    def append() -> None:
        try:
            file.append(numbered(3, 1))
        except ClosedError as error:
            errors.append(error)

    file._appender._turn.acquire()
    thread = threading.Thread(target=append)
    thread.start()
    while not file._appender._groups:
        time.sleep(0.001)
    closer = threading.Thread(target=file.close)
    closer.start()
    file._appender._turn.release()
    thread.join()
    closer.join()
    with RecordFile(tmp_path / "test.fbr") as reader:
        assert len(reader) + len(errors) == 4  # whoever was first


class StopError(Exception):
    """What the signal handler raises."""


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise in the middle of an append, and nowhere else."""
    while frame is not None:
        if frame.f_code is Appender.append.__code__:
            raise StopError
        frame = frame.f_back


@pytest.mark.parametrize("sync", [1, 2])
@pytest.mark.parametrize("capacity", [None, 8])
def test_an_append_that_is_interrupted_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: int, capacity: int | None
) -> None:
    """Before its commit block nothing of it is there; behind it, the next append follows it."""
    fdatasync, syncs = os.fdatasync, 0

    def interrupted(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        fdatasync(descriptor)
        if syncs == sync:
            raise StopError

    path = tmp_path / "test.fbr"
    with RecordFile(path, PLAIN, mode="a", capacity=capacity) as file:
        file.append(numbered(0, 2))
        monkeypatch.setattr(os, "fdatasync", interrupted)
        with pytest.raises(StopError):
            file.append(numbered(2, 2))
        there = 4 if sync == 2 else 2
        assert (file.appended, len(file)) == (there, there)
        assert file.append(numbered(there, 2)) == there
        assert everything(file)["number"].tolist() == list(range(there + 2))
    with RecordFile(path) as reader:
        assert everything(reader)["number"].tolist() == list(range(there + 2))


def test_a_closed_appender_takes_nothing_and_is_closed_once(tmp_path: Path) -> None:
    """Its descriptor may be another file's by then."""
    path = str(tmp_path / "test.fbr")
    appender = Appender(open_appending(path, Wanted(PLAIN, None, checksums=True)), sync=True)
    rows = numbered(0, 2).view(np.uint8).reshape(2, -1)
    assert appender.append(rows) == 0
    appender.close()
    appender.close()
    with pytest.raises(ClosedError, match="is closed; open it again to append"):
        appender.append(rows)
    with RecordFile(path, mode="a") as file:
        assert file.append(numbered(2, 1)) == 2


def test_an_append_is_withdrawn_while_it_waits_and_not_while_it_is_written(tmp_path: Path) -> None:
    """A task that is cancelled is told whether its records will be there."""
    path = str(tmp_path / "test.fbr")
    appender = Appender(open_appending(path, Wanted(PLAIN, None, checksums=False)), sync=False)
    waiting, stays = (Append(numbered(n, 1).view(np.uint8).reshape(1, -1)) for n in (7, 0))
    appender.enter(waiting)
    appender.enter(stays)
    assert appender.withdraw(waiting)
    assert not appender.withdraw(waiting)
    appender.drain()
    assert not appender.withdraw(stays)
    assert (stays.outcome(), appender.commit.appended) == (0, 1)
    appender.close()
    with RecordFile(path) as reader:
        assert everything(reader)["number"].tolist() == [0]


def test_a_signal_handler_that_raises_costs_no_record(tmp_path: Path) -> None:
    """Ctrl-C in a notebook: the next append must go on, and each record is there once."""
    over = threading.Event()

    def interrupt() -> None:
        pause = np.random.default_rng(5)
        while not over.is_set():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(pause.uniform(0.0001, 0.003))  # not a wait: how often it strikes

    before = signal.signal(signal.SIGUSR1, _stop)
    interrupter = threading.Thread(target=interrupt)
    number = interrupted = 0
    acknowledged = []
    with RecordFile(tmp_path / "test.fbr", PLAIN, mode="a") as file:
        interrupter.start()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            try:
                file.append(numbered(number, 3))
                acknowledged.append(number)
            except StopError:
                interrupted += 1
            number += 3
        over.set()
        interrupter.join()
        signal.signal(signal.SIGUSR1, before)
        file.append(numbered(number, 3))
        records = everything(file)
    assert interrupted > 0
    assert whole(records)
    groups = records["number"].astype(int).reshape(-1, 3)
    assert (np.diff(groups, axis=1) == 1).all()
    firsts = groups[:, 0].tolist()
    assert firsts == sorted(set(firsts))
    assert set(acknowledged) <= set(firsts)
