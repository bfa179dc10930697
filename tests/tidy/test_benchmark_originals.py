"""The originals' tables are measured by functions that exist, and their page is not hand-made."""

from __future__ import annotations

import importlib
import json
import re

import pytest

from benchmarks.harness import Series
from benchmarks.originals import command as originals
from benchmarks.originals import comms as original_comms
from benchmarks.originals import echo
from benchmarks.originals.original import PUBLISHED, trimmed_mean
from tests.tidy.tree import ROOT
from tools import originals as page

RUN = ROOT / "docs/originals.json"


def test_the_page_is_the_rendering_of_one_run():
    """A figure that somebody edits on the page, or takes from another run, is noticed."""
    written = (ROOT / "docs/originals.md").read_text(encoding="utf-8")
    assert written == page.render(json.loads(RUN.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", originals.ORIGINALS)
def test_every_original_has_its_tables_even_where_nobody_could_run(name: str):
    """A reader finds his table, its columns and what was published, and why ours is missing."""
    original = originals.ORIGINALS[name]
    runners = [*(one for one, _ in original.contestants), *original.once]
    series = {one.name: Series(one, failure="not installed") for one in runners}
    assert len(series) == len(runners), "two contestants have one name"
    for one in runners:
        module, _, function = one.function.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    tables = original.tables(series)
    shown = json.dumps([originals._plain(table) for table in tables])
    assert PUBLISHED in shown.lower()
    assert "not installed" in shown
    for table in tables:
        assert {len(line) for line in table.lines} == {len(table.columns)}, table.title


def test_what_was_measured_stands_in_its_cell():
    """Ours and the peers are told apart from what was published."""
    series = {
        one.name: Series(one, [{figures[0]: 1_234.5, f"{figures[0][:-5]}/kept": 0.5}])
        for one, figures in original_comms.COMMS.contestants
    }
    rates, _, held = original_comms.tables(series)
    assert ("forebay", "here", *["1,234"] * 5) in rates.lines
    assert ("tornado, uvloop", PUBLISHED, "9,412", "8,996", "6,839", "1,581", "143") in rates.lines
    assert ("forebay", *["1,234 (50%)"] * 4) in held.lines


def test_the_fastest_and_the_slowest_round_are_left_out():
    """As the verbs transport's authors averaged."""
    assert trimmed_mean([1.0, 10.0, 2.0, 3.0]) == 2.5
    assert trimmed_mean([1.0, 3.0]) == 2.0


def test_the_echo_command_takes_the_scripts_options():
    """A reader of the original types what he knows."""
    typed = ["-f", "5", "-b", "1e6", "-p", "10", "-c", "2", "--tls", "--uvloop"]
    scene = echo.parse([*typed, "--comm", "tornado"])
    one = scene.contestant()
    assert (scene.message, one.environment) == ("5x1e+06", "main")
    assert one.options["clients"] == 10
    assert one.options["connections"] == 2
    line = scene.line({"5x1e+06/rate": 200.0})
    assert line == "200.0 RPS, 5000.00 us / request, 1000.0 MB/s each way"
    with pytest.raises(SystemExit):
        echo.parse(["--comm", "forebay-native", "--tls"])


def test_the_page_says_machine_date_and_versions():
    """A figure without them is worth nothing."""
    text = (ROOT / "docs/originals.md").read_text(encoding="utf-8")
    assert re.search(r"Measured on \d{4}-\d\d-\d\d", text)
    assert re.search(r"Linux \S+, \d+ cores, .*; load [\d.]+ before", text)
    assert re.search(r"python 3\.\d+\.\d+, .*forebay \d", text)
