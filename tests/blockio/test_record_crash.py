"""SIGKILL during append: a clean prefix, with everything that was acknowledged.

FOREBAY_RECORD_KILLS says how many kills each kind of file sees; FOREBAY_RECORD_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from forebay.blockio.records.file import RecordFile
from forebay.blockio.records.inspect import verify
from tests.blockio.record_files import PLAIN, everything, whole
from tests.blockio.record_writer import ACKNOWLEDGED

pytestmark = pytest.mark.usefixtures("default_of_the_test")

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("FOREBAY_RECORD_KILLS", "5"))
SEED = int(os.environ.get("FOREBAY_RECORD_SEED", str(secrets.randbits(16))))
LIFE_S = 0.03
"""A writer is killed within this time after its first append."""

KINDS = [
    pytest.param(0, 1, "checksums", id="one thread"),
    pytest.param(0, 4, "plain", id="group commit"),
    pytest.param(2000, 4, "checksums", id="circular"),
]


def kill_a_writer(path: Path, chance: random.Random, *arguments: object) -> Counter[int]:
    """Start one, let it append for a while, kill it; how far it said that each thread has come."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.blockio.record_writer", path, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.read(ACKNOWLEDGED.size) == b"!" * ACKNOWLEDGED.size
        told = writer.stdout.read(ACKNOWLEDGED.size)
        time.sleep(chance.uniform(0.0, LIFE_S))  # not a wait: this is how long it lives
        writer.send_signal(signal.SIGKILL)
        told += writer.stdout.read()
    assert writer.returncode == -signal.SIGKILL
    acknowledged: Counter[int] = Counter()
    for who, number in ACKNOWLEDGED.iter_unpack(told[: len(told) // 12 * 12]):
        acknowledged[who] = number
    return acknowledged


@pytest.mark.timeout(30 + 4 * KILLS)
@pytest.mark.parametrize(("capacity", "threads", "checksums"), KINDS)
def test_a_killed_writer_leaves_a_clean_prefix(
    tmp_path: Path, capacity: int, threads: int, checksums: str
) -> None:
    """What was acknowledged would be gone, or a record half written would be taken for whole."""
    path, chance = tmp_path / "crash.fbr", random.Random(SEED)
    acknowledged: Counter[int] = Counter()
    appended = 0
    for _ in range(KILLS):
        acknowledged |= kill_a_writer(path, chance, capacity, threads, checksums)
        with RecordFile(path, PLAIN) as file:
            records = everything(file)
            assert file.appended >= appended, SEED
            appended = file.appended
        assert whole(records), SEED
        for writer in range(threads):
            numbers = records["number"][records["writer"] == writer].astype(int)
            if len(numbers):
                assert (np.diff(numbers) == 1).all(), SEED
                assert numbers[-1] + 1 >= acknowledged[writer], SEED
                assert capacity or numbers[0] == 0, SEED
        if checksums == "checksums":
            checked, wrong = verify(str(path), lambda done, total: None)
            assert (checked, wrong) == (len(records), []), SEED
    assert appended >= KILLS
