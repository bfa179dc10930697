"""The model: what each setting of an option adds to the size of a program, given its features.

A trial's value is the logarithm of its size over that at -Os, so values of settings add up. The
effect of a setting is a base and a change with each feature. Most settings do nothing, so both are
learned as a lasso (Tibshirani, 1996), by proximal gradient steps on batches of trials; a change
costs more than a base, because the columns of the features are scaled down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from examples.gcc_tuning.flags import Option

from .features import FEATURES

__all__ = ["BATCH", "FAILED", "Floats", "Learner", "Settings", "Weights", "record_type"]

Floats = npt.NDArray[np.float32]

FAILED = 0.1
"""Value of a trial whose program was refused, crashed or wrong; also the greatest that counts."""

BATCH = 256
FEATURE_SCALE = 0.5
MOMENTUM = 0.9
PENALTY = 2e-4
RATE = 0.1
SPREAD_MIN = 3e-3
SPREAD_PART = 0.5
"""Doubt about an effect, as a part of its size: a setting that does much may do less elsewhere."""


class Settings:
    """Every flag that the options of a gcc offer, by number.

    Args:
        options: of the compiler.
    """

    def __init__(self, options: Sequence[Option]):
        numbered = [(number, flag) for number, each in enumerate(options) for flag in each.flags()]
        self.options = np.array([number for number, _ in numbered])
        self.flags = [flag for _, flag in numbered]
        self.numbers = {setting: row for row, setting in enumerate(numbered)}

    def __len__(self) -> int:
        return len(self.flags)


def record_type(settings: int) -> np.dtype[np.void]:
    """A trial in the replay file: features, which settings were on (packed bits), and its value."""
    bits = (settings + 7) // 8
    return np.dtype(
        [("features", "<f4", (len(FEATURES),)), ("on", "u1", (bits,)), ("value", "<f4")]
    )


@dataclass(frozen=True)
class Weights:
    """What actors pull: one table, so that all of it is of one version.

    Attributes:
        table: a row for each setting: the base of its effect, the change with each feature, and
            how far from what is expected it may be. The last two rows are mean and deviation of
            the features.
    """

    table: Floats

    def effects(self, features: Floats) -> Floats:
        """The value that each setting is expected to add in a program."""
        added: Floats = self.table[:-2, :-1] @ inputs(features[None], self.table[-2:, 1:-1])[0]
        return added

    @property
    def spread(self) -> Floats:
        """How far from what is expected the effect of each setting in a program may be."""
        return self.table[:-2, -1]


def inputs(features: Floats, scale: Floats) -> Floats:
    """One, and the features on a common scale; shape (n, 1 + features)."""
    centred = np.clip((features - scale[0]) / scale[1], -3, 3) * FEATURE_SCALE
    return np.concatenate([np.ones((len(features), 1), np.float32), centred], axis=1)


class Learner:
    """Learns from batches of records.

    Args:
        settings: how many there are.
    """

    def __init__(self, settings: int):
        self._settings = settings
        self._weights = np.zeros((settings, 1 + len(FEATURES)), np.float32)
        self._gradient = np.zeros_like(self._weights)
        self._scale: Floats | None = None
        """Mean and deviation of the features in the first batch: weights refer to it ever after."""

    def untaught(self) -> Weights:
        """Weights before anything was learned: no setting has an effect."""
        return self._table(np.full(self._settings, SPREAD_MIN, np.float32))

    def step(self, records: npt.NDArray[np.void]) -> float:
        """Learn from a batch; returns its mean squared error before."""
        features = records["features"]
        if self._scale is None:
            self._scale = np.array([features.mean(axis=0), features.std(axis=0) + 1e-3], np.float32)
        given = inputs(features, self._scale)
        on = np.unpackbits(records["on"], axis=1, count=self._settings).astype(np.float32)
        errors = np.einsum("bs,bs->b", on, given @ self._weights.T) - records["value"]
        gradient = (on * errors[:, None]).T @ given / len(records)
        self._gradient += (1 - MOMENTUM) * (gradient - self._gradient)
        moved = self._weights - RATE * self._gradient
        self._weights = np.sign(moved) * np.maximum(np.abs(moved) - RATE * PENALTY, 0)
        return float(np.mean(errors**2))

    def weights(self, records: npt.NDArray[np.void]) -> Weights:
        """What was learned; the size of effects is that in the programs of a sample."""
        effects = inputs(records["features"], self._scaled()) @ self._weights.T
        return self._table(SPREAD_MIN + SPREAD_PART * np.sqrt(np.mean(effects**2, axis=0)))

    def _scaled(self) -> Floats:
        if self._scale is not None:
            return self._scale
        return np.array([np.zeros(len(FEATURES)), np.ones(len(FEATURES))], np.float32)

    def _table(self, spread: Floats) -> Weights:
        rows = np.concatenate([self._weights, spread[:, None]], axis=1)
        scale = np.pad(self._scaled(), ((0, 0), (1, 1)))
        return Weights(np.concatenate([rows, scale], dtype=np.float32))
