"""The search decides alone, so that it is tested without a compiler."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gcc_tuning.flags import Option
from examples.gcc_tuning.results import Result
from examples.gcc_tuning.search import Search

OPTIONS = [Option(f"-fx{i}", "switch", default="[disabled]") for i in range(40)]


def result(size: int, outcome: str = "good") -> Result:
    return {
        "outcome": outcome, "message": "", "bytes": size, "sections": {}, "opcodes": {},
        "cached": False,
    }  # fmt: skip


def size_of(flags: list[str]) -> int:
    """A compiler on which three options help, two harm, and the others do nothing."""
    effects = {"-fx3": -40, "-fx17": -25, "-fx30": -5, "-fx8": 60, "-fx21": 10}
    return 1000 + sum(effects.get(flag, 0) for flag in flags)


def run(search: Search) -> list[list[str]]:
    asked = []
    while not search.finished:
        asked.append(search.ask())
        search.tell(result(size_of(asked[-1])))
    return asked


def test_the_first_trial_is_the_baseline() -> None:
    """Everything is measured against -Os alone."""
    search = Search(OPTIONS, budget=5, seed="s")
    assert search.ask() == ["-Os"]
    search.tell(result(1000))
    assert (search.base_bytes, search.best_bytes, search.best_flags) == (1000, 1000, ["-Os"])


def test_it_finds_what_helps_and_leaves_out_what_does_nothing() -> None:
    """A table of fifty flags of which three matter cannot be read."""
    search = Search(OPTIONS, budget=200, seed="s")
    run(search)
    assert search.best_bytes == 930
    assert search.best_flags == ["-Os", "-fx3", "-fx17", "-fx30"]


def test_the_same_seed_asks_the_same_questions() -> None:
    """A result can be repeated."""
    first, second, other = (run(Search(OPTIONS, budget=60, seed=s)) for s in ("a", "a", "b"))
    assert first == second
    assert first != other


def test_history_never_rises_and_has_one_entry_a_trial() -> None:
    """It is what the picture shows."""
    search = Search(OPTIONS, budget=60, seed="s")
    run(search)
    assert len(search.history) == 60
    assert search.history == sorted(search.history, reverse=True)


@pytest.mark.parametrize("outcome", ["miscompiled", "refused", "crashed", "endless"])
def test_a_smaller_program_that_is_not_good_is_not_rewarded(outcome: str) -> None:
    """A miscompiled program may be very small."""
    search = Search(OPTIONS, budget=30, seed="s")
    search.ask()
    search.tell(result(1000))
    while not search.finished:
        search.ask()
        search.tell(result(1, outcome))
    assert (search.best_bytes, search.best_flags) == (1000, ["-Os"])
    assert search.outcomes == {"good": 1, outcome: 29}


def test_a_lost_trial_costs_one_trial_and_is_asked_again() -> None:
    """A killed service changes nothing but the number of trials left."""
    search = Search(OPTIONS, budget=10, seed="s")
    search.ask()
    search.tell(result(1000))
    lost = search.ask()
    search.tell(None)
    assert search.ask() == lost
    assert len(search.history) == 2
    assert search.outcomes["lost"] == 1


def test_flags_that_are_lost_twice_are_dropped() -> None:
    """Flags that kill every service must not use up the budget."""
    search = Search(OPTIONS, budget=10, seed="s")
    search.ask()
    search.tell(result(1000))
    lost = search.ask()
    search.tell(None)
    search.ask()
    search.tell(None)
    assert search.ask() != lost


def test_asking_beyond_the_budget_is_an_error() -> None:
    """A driver that does not stop is noticed."""
    search = Search(OPTIONS, budget=1, seed="s")
    run(search)
    with pytest.raises(ValueError, match="all 1 trials"):
        search.ask()
    with pytest.raises(ValueError, match="without ask"):
        search.tell(None)
    with pytest.raises(ValueError, match="budget is 0"):
        Search(OPTIONS, budget=0, seed="s")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 80),
    st.lists(st.sampled_from(["good", "miscompiled", "refused", "lost"]), min_size=80, max_size=80),
    st.randoms(use_true_random=False),
)
def test_any_answers_keep_its_invariants(
    count: int, budget: int, outcomes: list[str], sizes: object
) -> None:
    """Best is the least good size; each option is set at most once; the budget is met exactly."""
    search = Search(OPTIONS[:count], budget=budget, seed="s")
    best = 0
    for outcome in outcomes[:budget]:
        flags = search.ask()
        assert flags[0] == "-Os"
        assert len(flags) == len(set(flags)) <= count + 1
        size = sizes.randint(1, 2000)  # type: ignore[attr-defined]
        search.tell(None if outcome == "lost" else result(size, outcome))
        if outcome == "good":
            best = min(best or size, size)
        assert search.best_bytes == best
    assert search.finished
