"""The planted bugs still apply, and the lists of mutants name files that exist."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from itertools import chain

import pytest

from tests.tidy.tree import ROOT, complain
from tools import mutants, planted

PATCHES = sorted(planted.PLANTED.glob("*/*.patch"))
LEAST = 5
"""How many each machine is to have."""


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_planted_bug_applies_and_says_what_finds_it(path):
    """Who changes a machine learns at once that a proof of its model is out of date."""
    patch = planted.read(path)
    assert all(patch.laws)
    assert patch.steps > 0
    assert patch.test.startswith(("cargo test --locked ", "python -m pytest "))
    checked = subprocess.run(
        ["git", "apply", "--check", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, f"make the bug again in today's code: {checked.stdout}"


def test_each_machine_has_five_planted_bugs():
    """A machine whose model was never shown to find a bug is not proved by it."""
    counts = Counter(path.parent.name for path in PATCHES)
    few = [f"{machine} has {count}" for machine, count in counts.items() if count < LEAST]
    complain(few, next_step=f"Plant {LEAST} bugs at least in each machine.")


def test_the_machines_of_the_mutants_are_there():
    """A list that names a file which has moved would try no mutant of it and pass."""
    wrong = [
        f"{machine.name}: {pattern}"
        for machine in mutants.machines([])
        for pattern in machine.files
        if not list(ROOT.glob(pattern))
    ]
    complain(wrong, next_step="Name the files in tests/mutants/machines.toml.")


def test_what_notices_a_listed_survivor_is_there():
    """A test that was renamed or removed notices nothing, and the list would still excuse it."""
    lists = tomllib.loads((mutants.LISTS / "survivors.toml").read_text())
    wrong = []
    for one in chain.from_iterable(lists.values()):
        changed = ROOT / one["mutant"].partition(": ")[0]
        path, _, name = one.get("test", "").partition("::")
        test = ROOT / path
        is_there = test.is_file() and re.search(rf"\b(fn|def) {name}\(", test.read_text())
        if not changed.is_file() or ("test" in one and not is_there):
            wrong.append(f"{one['mutant']}: {one.get('test', 'no such file')}")
    complain(wrong, next_step="Name the file and the test in tests/mutants/survivors.toml.")
