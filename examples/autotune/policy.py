"""The ways to choose the flags of the next trial that are compared here.

All are searches as the demo's is: `ask` gives flags, `tell` takes what came of them, the first
trial is -Os alone, and the same seed and answers give the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from examples.gcc_tuning.flags import Option
from examples.gcc_tuning.results import Result
from examples.gcc_tuning.search import Search, Setting

from .features import features
from .model import FAILED, Floats, Settings, Weights

__all__ = ["WAYS", "LearnedSearch", "RandomSearch", "Way"]

Way = Literal["learned", "untaught", "demo", "random"]
WAYS: dict[Way, str] = {
    "learned": "learned policy",
    "untaught": "the same, untaught",
    "demo": "the demo's search",
    "random": "random search",
}

CHANGES = 12
"""Of a random set, as in the first phase of the demo's search."""

EXPLORED_CHANGES = 24
"""Of a random set to learn from: twice as many tell twice as much, and few more sets fail."""

FIRST_CHANGES = 24
"""Of the first set that is tried, by the model alone."""

STEPS = (2, 6, 12, 24, 48)
"""Changes of each later trial, of which one is drawn: those that promise most."""

NOISE = 0.005
"""Deviation of a trial's value from the sum of its settings' effects."""

GAIN_MIN = 5e-4
"""A change that promises less is left out, so that sets stay short."""


class RandomSearch(Search):
    """Each trial sets so many options at random on top of -Os."""

    def _proposed(self) -> Setting:
        return self._changed({}, CHANGES)


class LearnedSearch(Search):
    """Begins with what the model expects to be best, and corrects it by this program's own trials.

    The effects of the settings in this program are Gaussian, with mean and spread of the model.
    Each trial draws them from the posterior given all trials so far, and changes the best set in
    the places where that promises most (Thompson, 1933; drawn by Matheron's rule).

    Args:
        options: what may be set.
        weights: of the model.
        source: the program's text.
        budget: how many trials, that of -Os included.
        seed: what decides every draw.
        explore: share of the trials that are random sets, to learn from.

    Raises:
        ValueError: the weights are of another gcc.

    Attributes:
        values: settings and value of each trial after that of -Os.
        features: of the program, once it was built at -Os with its opcodes counted.
    """

    def __init__(
        self,
        options: Sequence[Option],
        weights: Weights,
        source: str,
        *,
        budget: int,
        seed: str,
        explore: float = 0.0,
    ):
        super().__init__(options, budget=budget, seed=seed)
        self.values: list[tuple[npt.NDArray[np.bool_], float]] = []
        self.features: Floats | None = None
        self._settings = Settings(options)
        if len(weights.spread) != len(self._settings):
            raise ValueError(
                f"weights of {len(weights.spread)} settings; this gcc has {len(self._settings)}:"
                " have the same gcc on every node"
            )
        self._weights = weights
        self._source = source
        self._explore = explore
        self._mean = np.zeros(len(self._settings), np.float32)
        self._rng = np.random.default_rng(self._random.getrandbits(64))

    def tell(self, result: Result | None) -> None:
        """Take the result of the trial that was asked for; None when it was lost."""
        asked, at_base = self._asked, self.base_bytes == 0
        super().tell(result)
        if result is None or asked is None:
            return
        if at_base:
            self.features = features(self._source, result)
            self._mean = self._weights.effects(self.features)
            return
        on = np.zeros(len(self._settings), bool)
        on[[self._settings.numbers[setting] for setting in asked.items()]] = True
        good = result["outcome"] == "good"
        value = math.log(result["bytes"] / self.base_bytes) if good else FAILED
        self.values.append((on, min(value, FAILED)))

    def _proposed(self) -> Setting:
        if self._random.random() < self._explore:
            return self._changed({}, EXPLORED_CHANGES)
        if not self.values:
            return self._climbed(self._mean, FIRST_CHANGES) or self._changed({}, CHANGES)
        proposed = self._climbed(self._drawn(), self._random.choice(STEPS))
        return proposed if proposed != self._best else self._changed(self._best, CHANGES)

    def _drawn(self) -> Floats:
        """Effects of all settings, drawn from the posterior."""
        on = np.array([each for each, _ in self.values], np.float32)
        values = np.array([value for _, value in self.values], np.float32)
        variance = self._weights.spread**2
        drawn = self._mean + self._weights.spread * self._rng.standard_normal(on.shape[1])
        noise = np.where(values < FAILED, NOISE, FAILED)  # which setting broke it is not known
        errors = values - on @ drawn - noise * self._rng.standard_normal(len(values))
        covariance = (on * variance) @ on.T + np.diag(noise**2)
        return drawn + variance * (on.T @ np.linalg.solve(covariance, errors))

    def _climbed(self, effects: Floats, changes: int) -> Setting:
        """Change the best set in the places that promise most."""
        order = np.argsort(effects, kind="stable")
        options, first = np.unique(self._settings.options[order], return_index=True)
        gains: list[tuple[float, int, int | None]] = []
        for option, row in zip(options.tolist(), order[first].tolist(), strict=True):
            present = self._best.get(option)
            now = effects[self._settings.numbers[option, present]] if present else 0.0
            to = row if effects[row] < 0 else None
            gains.append((now - (effects[row] if to is not None else 0.0), option, to))
        climbed = dict(self._best)
        for gain, option, to in sorted(gains, key=lambda each: -each[0])[:changes]:
            if gain < GAIN_MIN:
                break
            if to is None:
                climbed.pop(option, None)
            else:
                climbed[option] = self._settings.flags[to]
        return climbed
