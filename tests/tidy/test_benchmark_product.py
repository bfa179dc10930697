"""The product's table has a line for every neighbour, and counts all of what each one runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks import harness
from benchmarks.claim import Claim, Contestant
from benchmarks.product import claims, imports
from benchmarks.product.grid import COLUMNS, FOREBAY, RAY, SYSTEMS
from benchmarks.stopwatch import Figures
from tests.tidy.tree import ROOT

RESTING = """
from benchmarks.product import idle
idle.REST_S = 0.1
figures = idle.forebay()
print(figures["processes"], figures["memory_mb"] > 10)
"""


def measured(name: str, **figures: float) -> harness.Series:
    """One round of a contestant of the table."""
    (contestant,) = (
        one for column in COLUMNS for one in column.contestants.values() if one.name == name
    )
    return harness.Series(contestant, [figures])


def test_every_neighbour_has_a_line_even_where_it_does_not_install():
    """What is missing is seen, with the reason, in the table that shows the others."""
    series = {
        one.contestant.name: one
        for one in (
            measured("forebay call", mean=9.5),
            measured("forebay at rest", memory_mb=48.83, processes=4.0),
            measured("Ray at rest", memory_mb=450.0, processes=11.0),
        )
    }
    celery = COLUMNS[1].contestants["Celery"]
    series[celery.name] = harness.Series(celery, failure="redis-server is not installed")
    head, *lines = claims.tables(series).splitlines()
    assert [line.split("  ")[0] for line in lines[: len(SYSTEMS)]] == list(SYSTEMS)
    assert head.split("  ")[0] == "system"
    table = {line.split("  ")[0]: line.split()[1:] for line in lines[: len(SYSTEMS)]}
    assert table[FOREBAY] == ["9.5", "48.83", "4"]
    assert table[RAY] == ["-", "450", "11"]
    assert lines[len(SYSTEMS) :] == [
        "Celery call does not run: redis-server is not installed",
    ]


def fails() -> Figures:
    """A contestant that cannot run here."""
    raise FileNotFoundError("it is not installed")


def runs() -> Figures:
    """One that can."""
    return {"mean": 2.0}


def test_a_neighbour_beside_a_row_is_shown_and_costs_nothing_where_it_fails():
    """A row that holds two systems against each other does not need a third one."""
    ours, peer, other, broken = (
        Contestant(name, f"{__name__}:{function}")
        for name, function in (
            ("ours", "runs"),
            ("peer", "runs"),
            ("other", "runs"),
            ("broken", "fails"),
        )
    )
    claim = Claim("a.b.vs_c", ours, peer, "mean", "us", beside=(other, broken))
    series = harness.measure([claim], rounds=harness.ROUNDS_MIN, quick=True)
    row = harness.row(claim, series, {})
    assert row["ratio"] == 1.0
    assert [one["name"] for one in row["beside"]] == ["other", "broken"]
    assert row["beside"][0]["mean"] == 2.0
    assert "it is not installed" in row["beside"][1]["skipped"]


def test_what_rests_is_counted_with_everything_below_it():
    """A keeper and a template that nobody counts would make any ratio."""
    result = subprocess.run(
        [sys.executable, "-c", RESTING], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert result.returncode == 0, result.stderr
    processes, enough = result.stdout.split()
    assert int(processes) >= 4  # the client, the keeper, the template, the service
    assert enough == "True"


@pytest.mark.parametrize("modules", ["", "json"])
def test_an_import_is_a_whole_process(modules: str):
    """From its start to its end, with asyncio in every one."""
    figures = imports.imported(modules, starts=2, warm_up=1)
    assert figures["count"] == 2
    assert figures["p50"] > 5  # no interpreter starts, imports asyncio and ends in 5 ms


def test_the_claims_are_those_that_the_rows_of_rpc_and_pool_measure():
    """Two measurements of one thing would differ some day."""
    of = {claim.name: claim for claim in claims.CLAIMS}
    assert of["product.call.vs_ray"].ours.function == "benchmarks.rpc.call:forebay_calls"
    assert of["product.array_10mb.vs_ray"].peer.function == "benchmarks.rpc.call:ray_array"
    fresh = of["product.fresh_service.vs_ray"]
    assert fresh.ours.function == "benchmarks.pool.fresh:forebay_services"
    assert len(of) == 5
