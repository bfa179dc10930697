"""Datasets: what a DataLoader needs, without torch; and with it, where it is installed."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio import RecordFile
from forebay.blockio.records.dataset import RecordDataset
from forebay.errors import ConfigError, StaleError
from tests.blockio.record_files import PADDED, PLAIN, numbered

pytestmark = pytest.mark.usefixtures("default_of_the_test")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RecordFile]:
    with RecordFile(tmp_path / "test.fbr", PADDED, mode="a") as made:
        made.append(numbered(0, 100, PADDED))
        yield made


def test_records_are_found_by_index_and_in_batches(file: RecordFile) -> None:
    """With what default_collate takes: dicts of fields, or arrays."""
    dataset = file.dataset()
    assert len(dataset) == 100
    record = dataset[7]
    assert sorted(record) == ["body", "number"]
    assert (record["number"], record["body"].shape) == (7, (250,))
    assert [one["number"] for one in dataset.__getitems__([3, 1, -1])] == [3, 1, 99]
    with pytest.raises(IndexError):
        dataset[100]
    dataset.close()


def test_plain_records_are_arrays_and_numbers(tmp_path: Path) -> None:
    """Rows of an embedding need no field name."""
    with RecordFile(tmp_path / "rows.fbr", ("f4", (3,)), mode="a") as file:
        file.append(np.arange(12, dtype="f4").reshape(4, 3))
        dataset = file.dataset()
        assert dataset[2].tolist() == [6.0, 7.0, 8.0]
        assert [row.tolist() for row in dataset.__getitems__([0, 3])] == [[0, 1, 2], [9, 10, 11]]
        dataset.close()


def test_a_dataset_stays_what_it_was(file: RecordFile) -> None:
    """An epoch whose length changes under the loader ends in an error or never."""
    dataset = file.dataset()
    file.append(numbered(100, 50, PADDED))
    assert len(dataset) == 100
    assert len(file.dataset()) == 150
    dataset.close()


def test_what_was_overwritten_is_told(tmp_path: Path) -> None:
    """Index 0 would be another record than the one that was meant."""
    with RecordFile(tmp_path / "ring.fbr", PLAIN, mode="a", capacity=10) as file:
        file.append(numbered(0, 10))
        dataset = file.dataset()
        assert dataset[0]["number"] == 0
        file.append(numbered(10, 100))
        with pytest.raises(StaleError, match="record 0 has been overwritten"):
            dataset[0]
        dataset.close()


def read_in_child(dataset: RecordDataset, answers: Connection) -> None:
    answers.send([int(dataset[index]["number"]) for index in range(0, 100, 9)])
    dataset.close()


@pytest.mark.leaks(reason="multiprocessing keeps the tracker that spawn has started")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_open_the_file_themselves(file: RecordFile, method: str) -> None:
    """A worker that shared its parent's ring would take the parent's completions."""
    context: Any = multiprocessing.get_context(method)
    dataset = file.dataset()
    assert dataset[5]["number"] == 5  # open here, too
    here, there = context.Pipe(duplex=False)
    worker = context.Process(target=read_in_child, args=(dataset, there))
    worker.start()
    there.close()
    assert here.recv() == list(range(0, 100, 9))
    worker.join()
    assert worker.exitcode == 0
    worker.close()
    here.close()
    assert dataset[6]["number"] == 6
    dataset.close()


def test_a_pickled_dataset_carries_no_open_file(file: RecordFile) -> None:
    """Descriptors do not travel."""
    dataset = file.dataset()
    assert dataset[5]["number"] == 5
    copied = pickle.loads(pickle.dumps(dataset))
    assert (len(copied), copied[99]["number"]) == (100, 99)
    copied.close()
    dataset.close()


def test_torch_is_imported_only_when_it_is_asked_for(file: RecordFile) -> None:
    """It takes seconds, and a replay buffer of a program without it needs it never."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from forebay.errors import ConfigError\n"
        "import forebay\n"
        f"file = forebay.RecordFile({file.path!r})\n"
        "print(len(file.dataset()))\n"
        "try: file.iterable_dataset(10)\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    length, told = done.stdout.splitlines() or (done.stderr, "")
    assert length == "100"
    assert "needs PyTorch, which is not installed; pip install torch" in told
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_yields_each_record_once(file: RecordFile, workers: int) -> None:
    """With and without workers, of the map-style dataset and of the iterable one."""
    install = ".venv/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu"
    torch_data = pytest.importorskip(
        "torch.utils.data", reason=f"torch is not installed; type: {install}"
    )
    dataset = file.dataset()
    loader = torch_data.DataLoader(dataset, batch_size=16, num_workers=workers)
    numbers = [batch["number"].tolist() for batch in loader]
    assert [number for batch in numbers for number in batch] == list(range(100))
    for shuffle in (False, True):
        batches = file.iterable_dataset(16, shuffle=shuffle, seed=3)
        loader = torch_data.DataLoader(batches, batch_size=None, num_workers=workers)
        numbers = [batch["number"].tolist() for batch in loader]
        assert len(numbers) == len(loader) == 7
        assert sorted(number for batch in numbers for number in batch) == list(range(100))
        batches.dataset.close()
    dataset.close()
