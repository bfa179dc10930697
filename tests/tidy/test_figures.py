"""A figure that a user reads has its source beside it: a benchmark's row, a test, or a command."""

from __future__ import annotations

import re

import pytest

from benchmarks import __main__ as command
from tests.tidy.tree import ROOT, complain

FIGURE = re.compile(
    r"\d[\d.,]* times (?:as|the|more|what|our|Python|Process|loky|Huey|Celery)"
    r"|\d[\d.,]* (?:ns|us)\b|\d[\d.,]* (?:thousand|k) \S+ a second|of the speed of"
)
ROW = re.compile(r"`((?:blockio|executor|pool|product|rpc|tensor|transport)\.[\w.]+)`")
SOURCE = re.compile(r"`(?:make (?:node|bench|scenes)|(?:tests|crates)/[\w/.]+)`")


@pytest.fixture(scope="module")
def rows() -> frozenset[str]:
    """The names of all rows."""
    systems = command.SYSTEMS
    return frozenset(claim.name for one in systems for claim in command.claims_of(one, None))


@pytest.mark.parametrize("page", ["CHANGELOG.md", "README.md"])
def test_every_figure_has_its_row_beside_it(page: str, rows: frozenset[str]):
    """Nobody has to believe a ratio that he cannot measure again."""
    bare = [
        f"{page}:{number}: {line.strip()[:100]}"
        for number, line in enumerate((ROOT / page).read_text().splitlines(), start=1)
        if FIGURE.search(line)
        and not rows.intersection(ROW.findall(line))
        and not SOURCE.search(line)
    ]
    complain(bare, next_step="Name the row of a benchmark beside the figure, or remove it.")


@pytest.mark.parametrize(
    "page", ["CHANGELOG.md", "README.md", "ARCHITECTURE.md", "docs/decisions.md"]
)
def test_every_row_that_is_named_exists(page: str, rows: frozenset[str]):
    """A source that a reader cannot find is none."""
    named = set(re.findall(r"`([a-z]+\.[\w.]+\.vs_\w+)`", (ROOT / page).read_text()))
    complain(sorted(named - rows), next_step="Name a row that a benchmark has.")
