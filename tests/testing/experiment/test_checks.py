"""What an experiment looks for at its end: each thing that must not be is found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.blockio import Queue, set_default_queue
from forebay.testing import Ledger
from forebay.testing.experiment import checks
from forebay.testing.experiment.app import RECORDS
from forebay.testing.experiment.checks import explained, left_behind, lost_records
from forebay.testing.experiment.ground import Ground, prepared
from forebay.testing.experiment.outcome import Outcome, Row
from forebay.testing.experiment.workload import Success, Witness, kinds_of


@pytest.fixture
def ground() -> Iterator[Ground]:
    """The directory of an experiment that needs nothing of the machine."""
    with prepared(()) as made:
        yield made


@pytest.fixture(autouse=True)
def queue_of_the_test() -> Iterator[None]:
    """Have files that are opened without a queue use one that ends with the test."""
    with Queue() as queue:
        set_default_queue(queue)
        yield
        set_default_queue(None)


def _record(directory: Path, *numbers: int) -> Ledger:
    ledger = Ledger(directory / "ledger")
    with forebay.RecordFile(directory / RECORDS, "i8", mode="a", checksums=True) as file:
        for number in numbers:
            file.append(number)
    return ledger


def test_records_that_were_told_and_are_there_are_well(ground: Ground) -> None:
    """And one that is there although its request has failed."""
    ledger = _record(ground.directory, 3, 5, 7)
    ledger.ended("record-3", "a", "succeeded")
    ledger.ended("record-7", "b", "succeeded")
    ledger.ended("record-9", "c", "failed")
    assert lost_records(ledger, ground.directory) == []


def test_a_record_that_is_gone_or_there_twice_is_wrong(ground: Ground) -> None:
    """An append that returned is in the file, once."""
    ledger = _record(ground.directory, 3, 3)
    ledger.ended("record-4", "a", "succeeded")
    assert lost_records(ledger, ground.directory) == [
        "the file of records has a number twice",
        "record-4: succeeded, and its record is gone",
    ]


def test_a_damaged_file_of_records_is_wrong(ground: Ground) -> None:
    """Its checksums are looked at."""
    ledger = _record(ground.directory, *range(100))
    size = os.path.getsize(ground.directory / RECORDS)
    with open(ground.directory / RECORDS, "r+b") as file:
        file.seek(size - 8)
        file.write(b"\xff" * 8)
    (told,) = lost_records(ledger, ground.directory)
    assert told.startswith("the file of records: ")


def test_what_is_left_is_told_and_what_tempfile_probes_is_not(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the temporary directory of the experiment, a descriptor."""
    monkeypatch.setattr(checks, "GONE_S", 0.5)
    wrong: list[str] = []
    with contextlib.ExitStack() as stack, left_behind(ground, wrong):
        stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        (ground.scratch / "probe").write_bytes(b"blat")
        (ground.scratch / "forgotten").write_bytes(b"something")
    assert "forgotten" in wrong[0]
    assert "/dev/null" in wrong[0]
    assert "probe" not in wrong[0]


@pytest.mark.parametrize("cause", ["signal", "memory", "forebay.errors.BlockError", "OSError"])
def test_ends_by_faults_are_explained(cause: str) -> None:
    """Deaths, and errors of the system and of Forebay."""
    assert explained("failed", cause)
    assert explained("dead", cause)
    assert not explained("cancelled", cause)


@pytest.mark.parametrize(
    "cause", ["exit", "WrongValueError", "InternalError", "TypeError", "forebay.ConfigError"]
)
def test_ends_by_mistakes_are_not(cause: str) -> None:
    """No fault makes a value wrong, or our code raise what it never should."""
    assert not explained("failed", cause)


def test_a_fault_is_survived_by_what_was_submitted_after_it(tmp_path: Path) -> None:
    """What had been accepted before proves nothing, nor does what came too late."""
    witness = Witness(Ledger(tmp_path / "ledger"))
    witness.successes.append(Success(10.0, 12.0, uses_all=False, over_http=False))
    assert witness.survived(9.0, 69.0, "")
    assert not witness.survived(11.0, 71.0, "")
    assert not witness.survived(9.0, 11.0, "")
    assert not witness.survived(9.0, 69.0, "all")
    witness.successes.append(Success(10.0, 12.0, uses_all=True, over_http=True))
    assert witness.survived(9.0, 69.0, "all")
    assert witness.survived(9.0, 69.0, "http")


def test_a_fault_that_nothing_followed_makes_the_outcome_bad() -> None:
    """And one that was not injected does not."""
    refused = Row("full-disk", 0, 0, "no root")
    good = Outcome(1, 6.0, [Row("kill-server", 2, 2, None), refused], None, [], interrupted=False)
    bad = Outcome(1, 6.0, [Row("kill-server", 2, 1, None), refused], None, [], interrupted=False)
    assert good.is_good
    assert not bad.is_good
    assert bad.everything_wrong == ["kill-server: nothing succeeded after 1 of 2"]


def test_requests_of_an_application_may_begin_as_often_as_their_definitions_say() -> None:
    """Retries and idempotent ones again; a parameter `key` is filled where nothing is given."""
    parameters = [{"name": "key"}, {"name": "size"}]
    usual = {"parameters": parameters, "retries": 0, "idempotent": False}
    manifest = {
        "requests": [
            {"name": "once", **usual},
            {"name": "again", **usual, "retries": 2},
            {"name": "idle", **usual, "idempotent": True},
        ]
    }
    wanted = {"once": {"size": 1}, "again": {"key": "mine"}, "idle": {}}
    kinds = kinds_of(manifest, wanted)
    assert [kind.max_runs for kind in kinds] == [1, None, None]
    assert kinds[0].ask("once-7", 7, 0.0).arguments == {"size": 1, "key": "once-7"}
    assert kinds[1].ask("again-8", 8, 0.0).arguments == {"key": "mine"}
