"""The pages of hazards name tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import ROOT, complain, text

HAZARDS = {"transport": 33, "executor": 51, "blockio": 31, "tensor": 30}
"""How many each page is to have: a row is not lost in a merge."""

NAMED = re.compile(r"`([\w/.]+\.(?:py|rs))::(\w+)`")


def exists(path: str, name: str) -> bool:
    """Whether a file defines a test of this name."""
    file = ROOT / path
    if not file.is_file():
        return False
    keyword = "fn" if file.suffix == ".rs" else "def"
    return re.search(rf"\b{keyword} {name}\b", text(file)) is not None


@pytest.mark.parametrize("system", HAZARDS)
def test_every_hazard_is_shown_by_a_test_that_exists(system: str):
    """A reader who doubts a row can run it."""
    page = text(ROOT / f"docs/concepts/{system}/hazards.md")
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == HAZARDS[system]
    wrong = [row for row in rows if not NAMED.search(row)]
    wrong += [f"{path}::{name}" for path, name in NAMED.findall(page) if not exists(path, name)]
    complain(wrong, next_step="Name the test that shows it, or write one.")
