"""The learned policy and its model, on a compiler whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from examples.autotune.features import FEATURES
from examples.autotune.model import Learner, Settings, Weights, record_type
from examples.autotune.policy import LearnedSearch, RandomSearch
from examples.gcc_tuning.flags import Option
from examples.gcc_tuning.results import Result
from examples.gcc_tuning.search import Search

OPTIONS = [Option(f"-f{number}", "switch", default="[disabled]") for number in range(200)]
SETTINGS = Settings(OPTIONS)
BASE_BYTES = 100_000
GOOD, SHIFTED = slice(0, 10), slice(10, 14)
"""Settings that make every program smaller, and those that do so as a feature says."""


def truth(loops: float) -> np.ndarray:
    """What each setting adds to the logarithm of the size of a program with so many loops."""
    effects = np.zeros(len(SETTINGS), np.float32)
    effects[GOOD] = -0.02
    effects[20:60] = 0.01
    effects[SHIFTED] = -0.04 * loops
    return effects


def records(count: int, seed: int = 1) -> np.ndarray:
    """Trials of random sets."""
    rng = np.random.default_rng(seed)
    made = np.zeros(count, record_type(len(SETTINGS)))
    on = rng.random((count, len(SETTINGS))) < 0.06
    loops = rng.choice([-1.0, 1.0], count)
    made["features"][:, 0], made["on"] = loops, np.packbits(on, axis=1)
    made["value"] = [each @ truth(loop) for each, loop in zip(on, loops, strict=True)]
    return made


def taught(steps: int = 400) -> Weights:
    """What the model learns from such trials."""
    replay, rng = records(2_000), np.random.default_rng(1)
    learner = Learner(len(SETTINGS))
    for _ in range(steps):
        learner.step(replay[rng.integers(0, len(replay), 256)])
    return learner.weights(replay[:256])


def features_of(loops: float) -> np.ndarray:
    """Those of a program with so many loops."""
    return np.array([loops, *[0.0] * (len(FEATURES) - 1)], np.float32)


def compiled(flags: list[str], loops: float = -1.0, broken: str = "") -> Result:
    """What the known compiler makes of flags."""
    on = [SETTINGS.flags.index(flag) for flag in flags[1:]]
    size = round(BASE_BYTES * float(np.exp(truth(loops)[on].sum())))
    outcome = "refused" if broken in flags else "good"
    return {
        "outcome": outcome,
        "message": "",
        "bytes": size if outcome == "good" else 0,
        "sections": {".text": size},
        "opcodes": {"mov": 7},
        "cached": False,
    }


def searched(search: Search, broken: str = "") -> list[list[str]]:
    """Run a search to its end; returns what it asked."""
    asked = []
    while not search.finished:
        asked.append(search.ask())
        search.tell(compiled(asked[-1], broken=broken))
    return asked


def learned(weights: Weights, budget: int = 12, seed: str = "1") -> LearnedSearch:
    return LearnedSearch(OPTIONS, weights, "int main(void) {}", budget=budget, seed=seed)


def test_the_model_learns_what_each_setting_adds_and_how_features_change_that() -> None:
    """A learner that misses either proposes what made other programs smaller."""
    weights = taught()
    for loops in (-1.0, 1.0):
        effects = weights.effects(features_of(loops))
        assert np.corrcoef(effects, truth(loops))[0, 1] > 0.7
        assert effects[GOOD].max() < -0.01
    change = weights.effects(features_of(1.0)) - weights.effects(features_of(-1.0))
    assert change[SHIFTED].max() < 2 * np.delete(change, np.r_[SHIFTED]).min()


def test_batches_of_the_same_seed_teach_the_same() -> None:
    """A study whose seeds say nothing cannot be repeated."""
    first, second = taught(50), taught(50)
    assert first.table.tobytes() == second.table.tobytes()


def test_a_learned_search_saves_more_than_others_with_as_many_trials() -> None:
    """What was learned from other programs is what trials of this one need not find again."""
    searches: list[Search] = [
        learned(taught()),
        Search(OPTIONS, budget=12, seed="1"),
        RandomSearch(OPTIONS, budget=12, seed="1"),
    ]
    for search in searches:
        searched(search)
    best = [search.best_bytes for search in searches]
    assert best[0] < 0.9 * BASE_BYTES
    assert best[0] < 0.95 * min(best[1:])


def test_a_learned_search_begins_with_the_base_and_what_the_model_expects_to_be_best() -> None:
    """Its first trials are what a user with few trials gets."""
    search = learned(taught(), budget=3)
    base, first, _ = searched(search)
    assert base == ["-Os"]
    assert set(SETTINGS.flags[GOOD]) <= set(first)
    assert search.history[1] < 0.87 * BASE_BYTES


def test_trials_of_the_program_correct_what_the_model_says() -> None:
    """A flag that this program does not bear must not be in the way of all the others."""
    search = learned(taught(), budget=30)
    broken = SETTINGS.flags[GOOD][0]
    asked = searched(search, broken=broken)
    assert broken in asked[1]
    assert broken not in search.best_flags
    assert search.best_bytes < 0.87 * BASE_BYTES


@pytest.mark.parametrize("kind", ["learned", "random"])
def test_the_same_seed_asks_the_same(kind: str) -> None:
    """A run that another machine repeats, after a death too, finds the same."""

    def asked(seed: str) -> list[list[str]]:
        if kind == "learned":
            return searched(learned(WEIGHTS, seed=seed))
        return searched(RandomSearch(OPTIONS, budget=12, seed=seed))

    assert asked("1") == asked("1")
    assert asked("1") != asked("2")


def test_without_anything_learned_it_still_searches() -> None:
    """The first round of training begins with weights of zero."""
    search = learned(Learner(len(SETTINGS)).untaught(), budget=20)
    asked = searched(search)
    assert len({tuple(flags) for flags in asked}) == 20
    assert search.best_bytes < BASE_BYTES
    assert len(search.values) == 19


def test_weights_of_another_compiler_are_refused() -> None:
    """On a node with another gcc their rows would be those of other flags."""
    with pytest.raises(ValueError, match="weights of 3 settings; this gcc has 200"):
        learned(Learner(3).untaught())


WEIGHTS = Learner(len(SETTINGS)).untaught()
