"""The page of hazards names tests that exist."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT, complain, text

PAGE = ROOT / "docs/concepts/transport/hazards.md"
NAMED = re.compile(r"`([\w/.]+\.(?:py|rs))::(\w+)`")
HAZARDS = 31
"""How many the page is to have: a row is not lost in a merge."""


def exists(path: str, name: str) -> bool:
    """Whether a file defines a test of this name."""
    file = ROOT / path
    if not file.is_file():
        return False
    keyword = "fn" if file.suffix == ".rs" else "def"
    return re.search(rf"\b{keyword} {name}\b", text(file)) is not None


def test_every_hazard_is_shown_by_a_test_that_exists():
    """A reader who doubts a row can run it."""
    rows = [line for line in text(PAGE).splitlines() if line.startswith("| ")][1:]
    assert len(rows) == HAZARDS
    wrong = [row for row in rows if not NAMED.search(row)]
    wrong += [
        f"{path}::{name}" for path, name in NAMED.findall(text(PAGE)) if not exists(path, name)
    ]
    complain(wrong, next_step="Name the test that shows it, or write one.")
