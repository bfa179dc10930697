"""A click log whose answer is known: what was clicked was drawn by a model that we keep.

A click depends on what the dense features say, on a number for each category, and on how well the
categories of two tables go together. So the loss of the model that drew the clicks is known too,
and no other one can do better on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

DENSE = 8
"""Features that are numbers."""

LATENT = 4
"""Of a category: how it goes together with another one."""

HELD_OUT = 1 << 40
"""Number of the batch that no training step sees."""


class Batch(NamedTuple):
    """Some impressions, and whether they were clicked."""

    dense: Floats
    """Shape (n, DENSE)."""
    ids: Ids
    """Shape (tables, n): the category of each impression in each table."""
    clicked: Floats
    """Shape (n,), 0 or 1."""
    chance: Floats
    """Shape (n,): how likely a click was, which the model is not told."""


@dataclass(frozen=True)
class ClickLog:
    """Impressions without an end; the same for the same seed.

    Args:
        tables: kinds of categories.
        rows: categories of each kind.
        seed: of what draws everything.
    """

    tables: int
    rows: int
    seed: int = 7

    def batch(self, number: int, size: int) -> Batch:
        """The batch of that number: whoever asks for it, and whenever, gets the same."""
        rng = np.random.default_rng((self.seed, number))
        dense = rng.standard_normal((size, DENSE)).astype(np.float32)
        # Few categories are in most impressions, as in every real log.
        popular = rng.random((self.tables, size)) ** 2
        ids = (popular * self.rows).astype(np.int64)
        logit = dense @ self._teacher["dense"]
        for table in range(self.tables):
            logit += self._teacher["bias"][table, ids[table]]
        for table in range(0, self.tables - 1, 2):
            one, other = (self._teacher["latent"][each, ids[each]] for each in (table, table + 1))
            logit += np.einsum("nd,nd->n", one, other)
        chance = 1 / (1 + np.exp(-logit))
        clicked = rng.random(size) < chance
        return Batch(dense, ids, clicked.astype(np.float32), chance.astype(np.float32))

    @cached_property
    def _teacher(self) -> dict[str, Any]:
        rng = np.random.default_rng(self.seed)
        return {
            "dense": rng.standard_normal(DENSE) * 0.7,
            "bias": rng.standard_normal((self.tables, self.rows)) * 0.7,
            "latent": rng.standard_normal((self.tables, self.rows, LATENT)) * 0.4,
        }


def log_loss(chance: Floats, clicked: Floats) -> float:
    """The mean loss of saying that clicks are so likely."""
    sure = np.clip(np.where(clicked > 0.5, chance, 1 - chance), 1e-7, 1)
    return float(-np.log(sure).mean())
