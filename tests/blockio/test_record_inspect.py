"""`forebay records inspect`: what a file holds, and whether it is whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forebay.blockio import RecordFile
from forebay.blockio.records.commit import Commit, encode, offset_of
from forebay.blockio.records.inspect import VERIFY_BYTES
from forebay.cli import main
from tests.blockio.record_files import PLAIN, numbered

pytestmark = pytest.mark.usefixtures("default_of_the_test")

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, *arguments: object, code: int = 0) -> dict[str, Any]:
    """What the command prints as JSON."""
    assert main(["records", "inspect", *map(str, arguments), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of 300 records, of which the last 100 are in the window."""
    made = tmp_path / "test.fbr"
    with RecordFile(made, PLAIN, mode="a", capacity=100, checksums=True) as file:
        file.append(numbered(0, 300))
    return made


def test_it_says_what_is_in_a_file(path: Path, capsys: Capture) -> None:
    """Whoever finds one wants to know of what, how many, and whether somebody writes."""
    found = told(capsys, path)
    assert max(found["commits"], key=lambda commit: commit["sequence"])["appended"] == 300
    assert (found["records"], found["first"], found["appended"]) == (100, 200, 300)
    assert (found["capacity"], found["checksums"], found["record_bytes"]) == (100, True, 112)
    assert (found["stride_bytes"], found["size_bytes"]) == (116, os.path.getsize(path))
    assert json.loads(found["dtype"])["descr"][0] == ["number", "<u8"]
    assert (found["appended_by_pid"], found["uncommitted_bytes"]) == (None, 0)
    with RecordFile(path, mode="a"):
        assert told(capsys, path)["appended_by_pid"] == os.getpid()
    assert main(["records", "inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "stride_bytes" in text
    assert "commit block 1" in text


def test_verify_finds_each_damaged_record(path: Path, capsys: Capture) -> None:
    """One flipped bit among a million records."""
    assert told(capsys, path, "--verify")["damaged"] == []
    with RecordFile(path) as file:
        offsets = [file.layout.offset(number) for number in (207, 250, 299)]
    with open(path, "r+b") as raw:
        for offset in offsets:
            raw.seek(offset + 50)
            raw.write(b"\xfe")
    found = told(capsys, path, "--verify", code=1)
    assert (found["verified"], found["damaged"]) == (100, [207, 250, 299])
    assert main(["records", "inspect", str(path), "--verify"]) == 1
    assert "207, 250, 299" in capsys.readouterr().err


def test_verify_goes_through_files_of_any_size(tmp_path: Path, capsys: Capture) -> None:
    """In several reads, and each record once."""
    path = tmp_path / "large.fbr"
    n = 5 * VERIFY_BYTES // (2 * 4608)
    with RecordFile(path, "S4096", mode="a", checksums=True) as file:
        file.append(np.full(n, b"x" * 4096))
    found = told(capsys, path, "--verify")
    assert (found["verified"], found["damaged"]) == (n, [])


def test_a_damaged_copy_of_a_commit_is_shown(path: Path, capsys: Capture) -> None:
    """It costs nothing yet, and says that the disk loses bits."""
    before = told(capsys, path)["commits"]
    newest = max((0, 1), key=lambda place: before[place]["sequence"])
    with open(path, "r+b") as raw:
        raw.seek(4096 * (1 + newest) + 9)
        raw.write(b"torn")
    found = told(capsys, path, code=1)
    assert found["commits"][newest] == before[newest] | {"damaged_copies": 1}
    assert found["appended"] == 300
    assert main(["records", "inspect", str(path)]) == 1
    assert "300 records (one of two copies is damaged; opening" in capsys.readouterr().out
    assert told(capsys, path, "--verify", code=1)["damaged"] == []


def test_a_torn_commit_is_no_failure(path: Path, capsys: Capture) -> None:
    """A crash leaves it; the newer copy counts, and opening for appends completes it."""
    commit = max(Commit(c["sequence"], c["appended"]) for c in told(capsys, path)["commits"])
    torn = Commit(commit.sequence + 1, commit.appended)
    with open(path, "r+b") as raw:
        raw.seek(offset_of(torn.sequence))
        raw.write(encode(torn)[:512])
    assert told(capsys, path)["commits"][torn.sequence % 2] == {
        "sequence": torn.sequence,
        "appended": 300,
        "damaged_copies": 0,
        "torn": True,
    }
    assert main(["records", "inspect", str(path)]) == 0
    assert "300 records (torn by a crash)" in capsys.readouterr().out


def test_damage_and_mistakes_have_exit_codes(path: Path, tmp_path: Path, capsys: Capture) -> None:
    """1: damaged; 2: no record file, or nothing to verify; 4: not there."""
    notes = tmp_path / "notes"
    notes.write_text("milk, eggs")
    plain = tmp_path / "plain.fbr"
    RecordFile(plain, "f4", mode="a").close()
    assert main(["records", "inspect", str(tmp_path / "gone")]) == 4
    assert main(["records", "inspect", str(notes)]) == 2
    assert main(["records", "inspect", str(plain), "--verify"]) == 2
    assert "has no checksums to verify" in capsys.readouterr().err
    with open(path, "r+b") as raw:
        raw.seek(40)
        raw.write(b"\xff")
    assert "header's checksum is wrong" in told(capsys, path, code=1)["broken"]
    assert main(["records", "inspect", str(path)]) == 1
