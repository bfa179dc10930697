"""Circular files: the window is the last records, for whoever appends and for who reads."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forebay.blockio.records.file import RecordFile
from forebay.errors import StaleError
from tests.blockio.record_files import PLAIN, everything, numbered, whole

pytestmark = pytest.mark.usefixtures("default_of_the_test")

ROOT = Path(__file__).parents[2]


class Window(RuleBasedStateMachine):
    """A file, a reader, and a list that says what they hold."""

    @initialize(capacity=st.one_of(st.none(), st.integers(1, 40)), checksums=st.booleans())
    def make(self, capacity: int | None, checksums: bool) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = f"{self.directory.name}/model.fbr"
        self.capacity = capacity
        self.options = {"capacity": capacity, "checksums": checksums, "sync": False}
        self.file = RecordFile(self.path, PLAIN, mode="a", **self.options)  # type: ignore[arg-type]
        self.reader = RecordFile(self.path)
        self.appended = self.seen = 0

    def window(self, appended: int) -> list[int]:
        first = 0 if self.capacity is None else max(0, appended - self.capacity)
        return list(range(first, appended))

    @rule(n=st.integers(0, 100))
    def append(self, n: int) -> None:
        assert self.file.append(numbered(self.appended, n)) == self.appended
        self.appended += n

    @rule()
    def reopen(self) -> None:
        self.file.close()
        self.file = RecordFile(self.path, PLAIN, mode="a", **self.options)  # type: ignore[arg-type]

    @rule()
    def refresh(self) -> None:
        self.seen = self.appended
        assert self.reader.refresh() == len(self.window(self.appended))

    @rule(seed=st.integers(0, 99), n=st.integers(0, 50))
    def gather(self, seed: int, n: int) -> None:
        window = self.window(self.appended)
        if window:
            indices = np.random.default_rng(seed).integers(-len(window), len(window), n)
            found = self.file.gather(indices)["number"].tolist()
            assert found == [window[index] for index in indices]

    @rule(n=st.integers(1, 50))
    def sample(self, n: int) -> None:
        if self.appended:
            found = self.file.sample(n)
            assert whole(found)
            assert set(found["number"].tolist()) <= set(self.window(self.appended))

    @invariant()
    def the_reader_sees_what_it_saw_or_is_told(self) -> None:
        window = self.window(self.seen)
        assert len(self.reader) == len(window)
        try:
            assert everything(self.reader)["number"].tolist() == window
        except StaleError:
            assert self.capacity is not None
            assert self.appended > self.seen

    @invariant()
    def the_window_is_the_last_records(self) -> None:
        window = self.window(self.appended)
        assert (len(self.file), self.file.appended) == (len(window), self.appended)
        assert self.file.first == (window or [self.appended])[0]
        records = everything(self.file)
        assert whole(records)
        assert records["number"].tolist() == window

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.file.close()
            self.reader.close()
            self.directory.cleanup()


Window.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
TestWindow: Any = Window.TestCase


@pytest.mark.parametrize("capacity", [1, 7, 100])
@pytest.mark.parametrize("torn", [False, True])
def test_a_group_that_is_being_written_is_outside_of_the_window(
    tmp_path: Path, capacity: int, torn: bool
) -> None:
    """A crash in the middle of a group, and of its commit, must leave the window before it."""
    path = tmp_path / "test.fbr"
    with RecordFile(path, PLAIN, mode="a", capacity=capacity, checksums=True) as file:
        group = file.layout.max_group
        n = 3 * file.layout.slots + 1
        file.append(numbered(0, n))
        slots = [file.layout.offset(n + record) for record in range(group)]
        if torn:  # the newest commit is gone, and the group after it half written
            slots += [file.layout.offset(n - 1 - record) for record in range(n % group or group)]
            sequence = file._commit.sequence if file._appender is None else 0
            sequence = file._appender.commit.sequence if file._appender else sequence
    with open(path, "r+b") as raw:
        for offset in slots:
            raw.seek(offset)
            raw.write(b"half of a record")
        if torn:
            raw.seek(4096 * (1 + sequence % 2))
            raw.write(b"half of a commit" * 256)
    with RecordFile(path) as file:
        records = everything(file)
        assert len(records) == capacity
        assert whole(records)
        assert records["number"][-1] == (n - 1 if not torn else n - 1 - (n % group or group))


READER = """
import sys
import numpy as np
from forebay.blockio.records.file import RecordFile
from forebay.errors import StaleError
from tests.blockio.record_files import whole
rng, stale, samples, last = np.random.default_rng(1), 0, 0, 0
with RecordFile(sys.argv[1]) as file:
    print("ready", flush=True)
    while last < int(sys.argv[2]):
        file.refresh()
        last = file.appended
        if not last:
            continue
        try:
            batch = file.gather(np.arange(len(file)))
            assert whole(batch), batch
            assert batch["number"].tolist() == list(range(file.first, last)), "gather"
        except StaleError:
            stale += 1
        for _ in range(3):
            try:
                batch = file.sample(200, rng=rng)
            except StaleError:  # the writer outran 16 draws; it ends, and then this does not happen
                stale += 1
                continue
            assert whole(batch), batch
            low, high = int(batch["number"].min()), int(batch["number"].max())
            assert file.first <= low <= high < file.appended, "sample"
            samples += 1
print(samples, stale)
"""


@pytest.mark.parametrize("sync", [True, False])
def test_a_reader_in_another_process_never_sees_a_mixed_record(tmp_path: Path, sync: bool) -> None:
    """It learns from numbers that never were, and nobody finds out."""
    path, n = tmp_path / "test.fbr", 40_000
    with RecordFile(path, PLAIN, mode="a", capacity=1000, sync=sync) as file:
        with subprocess.Popen(
            [sys.executable, "-c", READER, path, str(n)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            for start in range(0, n, 200):
                file.append(numbered(start, 200))
            told, complaints = reader.communicate(timeout=50)
        assert reader.returncode == 0, complaints
        assert int(told.split()[0]) > 0


def test_a_record_that_was_overwritten_is_refused(tmp_path: Path) -> None:
    """An index that means another record by now would return it as if nothing had happened."""
    path = tmp_path / "test.fbr"
    with RecordFile(path, PLAIN, mode="a", capacity=100) as file, RecordFile(path) as reader:
        file.append(numbered(0, 100))
        reader.refresh()
        file.append(numbered(100, file.layout.max_group))
        assert everything(reader)["number"].tolist() == list(range(100))  # whole as yet
        file.append(numbered(100 + file.layout.max_group, 1))
        with pytest.raises(StaleError, match="record 0 has been overwritten"):
            reader.gather([0, 99])
        assert reader.gather([1, 99])["number"].tolist() == [1, 99]
        for start in range(1000, 2000, 10):
            file.append(numbered(start, 10))
        with pytest.raises(StaleError):
            reader.gather([0, 99])
        batch = reader.sample(50, rng=np.random.default_rng(3))
        assert batch["number"].min() >= 1900
        assert reader.first == file.first
