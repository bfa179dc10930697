"""The best variant of a peer is the one compared, and what cannot be the best is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks import harness, race
from benchmarks.claim import Claim, Contestant

OURS = Contestant("ours", "module:ours", asks=True)
SLOW = Contestant("slow", "module:slow", asks=True)
FAST = Contestant("fast", "module:fast", asks=True)
CLOSE = Contestant("close", "module:close", asks=True)
RATE = Claim(
    *("a.b.vs_c", OURS, SLOW, "rate", "1/s"), higher_is_better=True, variants=(FAST, CLOSE)
)


def test_ours_is_compared_with_the_peers_best_variant():
    """Nobody wins against a peer by running it the slow way."""
    values = {"ours": 20.0, "slow": 4.0, "fast": 10.0, "close": 9.0}
    rounds = {
        each.name: harness.Series(each, [{"rate": values[each.name]}] * 3)
        for each in (OURS, *RATE.peers)
    }
    row = harness.row(RATE, rounds, {})
    assert (row["peer"], row["ratio"]) == (10.0, 2.0)
    assert row["peer_detail"]["name"] == "fast"


def test_a_variant_that_does_not_run_leaves_no_best():
    """The best of those that ran may not be the best: the row says so instead of a ratio."""
    rounds = {each.name: harness.Series(each, [{"rate": 1.0}]) for each in (OURS, SLOW, CLOSE)}
    rounds["fast"] = harness.Series(FAST, failure="not installed")
    row = harness.row(RATE, rounds, {})
    assert (row["ratio"], row["skipped"]) == (None, "fast: not installed")


def test_a_variant_far_behind_stays_out_of_the_next_round():
    """A run does not spend its minutes on what cannot be the best."""
    values = {"slow": [4.0], "fast": [10.0], "close": [9.0]}
    assert race.left(RATE, values, before=2) == ["fast", "close"]


def test_one_bad_round_does_not_put_a_variant_out_of_the_race():
    """A disturbance of the machine is no result."""
    values = {"slow": [9.0, 1.0], "fast": [10.0, 10.0], "close": [9.0, 9.0]}
    assert race.left(RATE, values, before=3) == ["slow", "fast", "close"]


def test_lower_is_better_where_the_claim_says_so():
    """A latency far above the best one is what is left out."""
    latency = Claim("a.b.vs_c", OURS, SLOW, "mean", "us", variants=(FAST,))
    assert race.left(latency, {"slow": [30.0], "fast": [10.0]}, before=2) == ["fast"]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Sequence[str]]]:
    """Who ran, in order, and which figures it was asked for; nothing is started."""
    calls: list[tuple[str, Sequence[str]]] = []
    rates = {"ours": 30.0, "slow": 4.0, "fast": 10.0, "close": 9.0}

    def run_round(
        contestant: Contestant, *, quick: bool, wanted: Sequence[str] = ()
    ) -> dict[str, Any]:
        calls.append((contestant.name, wanted))
        figures = dict.fromkeys(wanted, rates[contestant.name])
        return {"figures": figures, "versions": {}}

    monkeypatch.setattr(harness, "run_round", run_round)
    return calls


def test_after_three_rounds_the_leader_alone_goes_on(ran: list[tuple[str, Sequence[str]]]):
    """A claim of five rounds costs two runs in each of the last, and only its own figure."""
    long = Claim(
        *("a.b.vs_d", OURS, SLOW, "long", "1/s"),
        higher_is_better=True,
        variants=(FAST, CLOSE),
        rounds_min=5,
    )
    series = harness.measure([RATE, long], rounds=3, quick=True)
    assert [name for name, _ in ran[:4]] == ["ours", "slow", "fast", "close"]
    assert all(list(wanted) == ["rate", "long"] for _, wanted in ran[:4])
    assert ran[-4:] == [("ours", ["long"]), ("fast", ["long"])] * 2
    row = harness.row(long, series, {})
    assert (row["rounds"], row["ratio"]) == (5, 3.0)
    assert harness.row(RATE, series, {})["rounds"] == 3
