"""What is told of a study: the table, the verdict, the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.autotune.app import Learned
from examples.autotune.policy import WAYS
from examples.autotune.study import Study
from examples.gcc_tuning.found import Found

DOCS = Path(__file__).parents[2] / "docs"


def found(program: str, best: int) -> Found:
    improved = [(1, 1000), (3, best)] if best < 1000 else [(1, 1000)]
    return Found(program, 1000, best, ["-Os"], 4, improved, {"good": 4}, 0)


def study(**best: list[int]) -> Study:
    """A study with one seed for each size that a way found for both of its programs."""
    seeds = range(len(best["learned"]))
    return Study(
        [
            Learned(
                seed, 7, {way: [found("lz", best[way][seed]), found("tar", 1000)] for way in WAYS}
            )
            for seed in seeds
        ],
        minutes=1.0,
    )


def test_the_curve_is_the_mean_over_programs_after_each_trial() -> None:
    """The picture shows what a user with fewer compilations would have."""
    curves = study(
        learned=[900, 800], demo=[950, 950], random=[1000, 1000], untaught=[1000, 1000]
    ).curves("learned")
    assert curves.round(6).tolist() == [[0, 0, 5, 5], [0, 0, 10, 10]]


@pytest.mark.parametrize(
    ("demo", "verdict"),
    [
        (
            950,
            "beats the same, untaught (in 2 of 2 seeds), the demo's search (in 2 of 2 seeds) and",
        ),
        (850, "but does not beat the demo's search (in 1 of 2 seeds)"),
        (700, "but does not beat the demo's search (in 0 of 2 seeds)"),
    ],
)
def test_the_verdict_says_so_where_the_policy_does_not_win(demo: int, verdict: str) -> None:
    """A study that only knows success is no study."""
    told = study(
        learned=[900, 800], demo=[demo, demo], random=[1000, 1000], untaught=[1000, 1000]
    ).verdict()
    assert verdict in told


def test_the_verdict_names_all_where_it_beats_none() -> None:
    """The plain sentence of the worst case."""
    told = study(learned=[1000], untaught=[990], demo=[900], random=[950]).verdict()
    assert told == (
        "The learned policy does not beat the same, untaught (in 0 of 1 seeds), the demo's search"
        " (in 0 of 1 seeds) and random search (in 0 of 1 seeds)"
    )


@pytest.mark.needs("gcc")
def test_figures_are_kept_with_their_verdict(tmp_path: Path) -> None:
    """Whoever doubts one builds the program again with its flags."""
    one = study(learned=[900, 800], demo=[950, 950], random=[1000, 1000], untaught=[1000, 1000])
    kept = json.loads(one.save(tmp_path / "made" / "figures.json").read_text())
    assert kept["saved_percent"] == {
        "learned": [5, 10],
        "untaught": [0, 0],
        "demo": [2.5, 2.5],
        "random": [0, 0],
    }
    assert kept["verdict"] == one.verdict()
    assert len(kept["found"]) == 2 * len(WAYS) * 2
    assert {each["flags"] for each in kept["found"]} == {"-Os"}


def test_the_page_says_what_the_figures_say() -> None:
    """Who makes them anew writes its table anew."""
    kept = json.loads((DOCS / "autotune.json").read_text())
    page = (DOCS / "guides" / "autotune.md").read_text()
    for way, saved in kept["saved_percent"].items():
        mean, least, greatest = sum(saved) / len(saved), min(saved), max(saved)
        ends = f"| {mean:.1f} % | {least:.1f} % and {greatest:.1f} % |"
        assert f"| {WAYS[way]} |" in page
        assert any(
            row.startswith(f"| {WAYS[way]} |") and row.endswith(ends) for row in page.split("\n")
        )
